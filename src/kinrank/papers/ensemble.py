"""Ensembles of rankers, with weights for all queries (SER) or for each one (SSER; Hoi and Jin 2008)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, Self, get_args

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.learn._prepare import Missing, Preparer
from kinrank.rankers.base import LinearWeights, Ranker, WeightedRanker, exact_weights
from kinrank.rankers.capabilities import Capabilities
from kinrank.store import nest, unnest

_FIRST_CURVATURE = 0.9  # in units of C: the first smoothed corners are a bit wider than 1, the loss at w = 0
_GROWTH = 10.0
_MAX_ROUNDS = 12
_MAX_STEPS = 100
_ROUNDING = 1e-14  # gradients below this, relative to the forces they are summed from, are noise


class _SmoothedProblem(NamedTuple):
    """½ w'Qw - linear·w plus smoothed hinges and smoothed bounds w ≥ 0.

    With a multiplier α, a hinge becomes its Moreau envelope: 0, then a parabola of curvature ρ, then a line of slope
    C. With a multiplier η, the bound w ≥ 0 becomes a parabola of curvature σ. Their slopes at the minimum are the next
    multipliers: clip(α + ρ (1 - b·w), 0, C) and max(0, η - σ w).
    """

    Q: Any
    linear: Any
    B: Any
    C: float
    alpha: Any
    eta: Any
    rho: float
    sigma: float


@numba.njit(cache=True, nogil=True)
def method_of_multipliers(
    Q: Any,
    linear: Any,
    constant: float,
    B: Any,
    C: float,
    tolerance: float,
    gap_tolerance: float,
    w: Any,
    alpha: Any,
    eta: Any,
) -> tuple[float, int]:
    """Minimize ½ w'Qw - linear·w + constant + C Σ max(0, 1 - b·w) over w ≥ 0, in place.

    Each round minimizes a smoothed problem and takes its slopes as the new multipliers. The smoothing shrinks until
    the optimality conditions hold to `tolerance`, in units of a margin. Rounds then go on until the duality gap is
    at most `gap_tolerance` times the objective: a margin missed by 1e-10 in each of many hinges can still cost more
    than a small objective allows.

    Returns
    -------
    float
        The residual of the optimality conditions, in units of a margin.
    int
        Newton steps taken.
    """
    size = np.sqrt(np.sum(B * B) / max(len(B), 1)) if np.any(B) else 1.0
    rho = _FIRST_CURVATURE * C
    residual, n_steps = np.inf, 0
    margins = np.empty(len(B))
    feasible = np.empty(len(w))
    for _ in range(_MAX_ROUNDS):
        # σ multiplies w and ρ multiplies a margin, which is |b| times as large.
        problem = _SmoothedProblem(Q, linear, B, C, alpha.copy(), eta.copy(), rho, rho * size * size)
        multiply(B, w, margins)
        for _ in range(_MAX_STEPS):
            gradient = _gradient(problem, w, margins, alpha, eta)
            forces = size * (rho + alpha.sum()) + np.abs(linear).max()
            if np.abs(gradient).max() <= _ROUNDING * forces:
                break
            n_steps += 1
            if not _newton_step(problem, w, margins, alpha, eta, gradient):
                break
        residual = _largest_difference(alpha, problem.alpha) / rho
        residual = max(residual, size * _largest_difference(eta, problem.eta) / problem.sigma)
        if residual > tolerance:
            rho *= _GROWTH
            continue
        project(w, eta, feasible)
        multiply(B, feasible, margins)
        value, gap = _value_and_gap(problem, constant, feasible, margins, alpha)
        # Margins are about 1, so each hinge contributes rounding of about C times the machine epsilon.
        if gap <= max(gap_tolerance * value, 4e-16 * C * len(B)):
            break
    return residual, n_steps


@numba.njit(cache=True, nogil=True)
def _value_and_gap(problem: _SmoothedProblem, constant: float, w: Any, margins: Any, alpha: Any) -> tuple[float, float]:
    """Return the objective at w ≥ 0 and how far it can be above the minimum, by complementary slackness."""
    value = constant + 0.5 * np.dot(w, np.dot(problem.Q, w)) - np.dot(problem.linear, w)
    gap = 0.0
    for i in range(len(margins)):
        loss = 1.0 - margins[i]
        value += problem.C * max(loss, 0.0)
        gap += problem.C * max(loss, 0.0) - alpha[i] * loss
    return value, gap


@numba.njit(cache=True, nogil=True)
def project(w: Any, eta: Any, out: Any) -> None:
    """Set negative variables, and those whose bound is active (η > 0), to 0."""
    for j in range(len(w)):
        out[j] = 0.0 if eta[j] > 0.0 else max(w[j], 0.0)


@numba.njit(cache=True, nogil=True)
def _gradient(problem: _SmoothedProblem, w: Any, margins: Any, slopes: Any, bound_slopes: Any) -> Any:
    """Return the gradient at w; fill the slopes of the hinges and of the bounds."""
    n, m = problem.B.shape
    gradient = np.dot(problem.Q, w) - problem.linear
    for i in range(n):
        slopes[i] = min(max(problem.alpha[i] + problem.rho * (1.0 - margins[i]), 0.0), problem.C)
        if slopes[i] > 0.0:
            for j in range(m):
                gradient[j] -= slopes[i] * problem.B[i, j]
    for j in range(m):
        bound_slopes[j] = max(problem.eta[j] - problem.sigma * w[j], 0.0)
        gradient[j] -= bound_slopes[j]
    return gradient


@numba.njit(cache=True, nogil=True)
def _newton_step(
    problem: _SmoothedProblem, w: Any, margins: Any, slopes: Any, bound_slopes: Any, gradient: Any
) -> bool:
    """Move w and its margins by one Newton step; return whether they moved."""
    n, m = problem.B.shape
    hessian = problem.Q.copy()
    for i in range(n):
        if 0.0 < slopes[i] < problem.C:
            for j in range(m):
                scaled = problem.rho * problem.B[i, j]
                for k in range(j + 1):
                    hessian[j, k] += scaled * problem.B[i, k]
    for j in range(m):
        if bound_slopes[j] > 0.0:
            hessian[j, j] += problem.sigma
    direction = -_solve_lower(hessian, gradient)
    along = np.empty(n)
    multiply(problem.B, direction, along)
    t = _step_length(problem, w, margins, direction, along, np.dot(gradient, direction))
    moved = bool(np.abs(t * direction).max() > 1e-15 * np.abs(w).max())
    for j in range(m):
        w[j] += t * direction[j]
    for i in range(n):
        margins[i] += t * along[i]
    return moved


@numba.njit(cache=True, nogil=True)
def _step_length(
    problem: _SmoothedProblem, w: Any, margins: Any, direction: Any, along: Any, slope_at_0: float
) -> float:
    """Return a step of at most 1 at which the slope, which only rises, is nearly 0 from below.

    The zero is bracketed and found by the Illinois method: secants, halving the slope of an end that does not move.
    """
    constant = np.dot(direction, np.dot(problem.Q, w) - problem.linear)
    curvature = np.dot(direction, np.dot(problem.Q, direction))
    low, high = 0.0, 1.0
    slope_low = slope_at_0
    slope_high = constant + curvature + _slope(problem, w, margins, direction, along, high)
    if slope_high <= -1e-9 * slope_at_0:
        return high
    last_moved = 0
    for _ in range(60):
        middle = low + (high - low) * slope_low / (slope_low - slope_high)
        slope = constant + middle * curvature + _slope(problem, w, margins, direction, along, middle)
        if slope > 0.0:
            high, slope_high = middle, slope
            slope_low *= 0.5 if last_moved < 0 else 1.0
            last_moved = -1
        else:
            low, slope_low = middle, slope
            if slope >= 0.05 * slope_at_0:
                break
            slope_high *= 0.5 if last_moved > 0 else 1.0
            last_moved = 1
    return low


@numba.njit(cache=True, nogil=True)
def _slope(problem: _SmoothedProblem, w: Any, margins: Any, direction: Any, along: Any, t: float) -> float:
    """Return what hinges and bounds add to the slope along the direction, at w + t direction."""
    total = 0.0
    for i in range(len(margins)):
        loss = 1.0 - margins[i] - t * along[i]
        total -= min(max(problem.alpha[i] + problem.rho * loss, 0.0), problem.C) * along[i]
    for j in range(len(w)):
        total -= max(problem.eta[j] - problem.sigma * (w[j] + t * direction[j]), 0.0) * direction[j]
    return total


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def multiply(B: Any, x: Any, out: Any) -> None:
    """Compute B x; the order of each sum is left to the compiler, so that it can vectorize."""
    for i in range(B.shape[0]):
        total = 0.0
        for j in range(B.shape[1]):
            total += B[i, j] * x[j]
        out[i] = total


@numba.njit(cache=True, nogil=True)
def _solve_lower(A: Any, rhs: Any) -> Any:
    """Solve A x = rhs by Cholesky; A is positive definite, given by its lower triangle, which is overwritten."""
    m = len(rhs)
    x = rhs.copy()
    for j in range(m):
        for k in range(j):
            A[j, j] -= A[j, k] * A[j, k]
        A[j, j] = np.sqrt(A[j, j])
        for i in range(j + 1, m):
            for k in range(j):
                A[i, j] -= A[i, k] * A[j, k]
            A[i, j] /= A[j, j]
        for k in range(j):
            x[j] -= A[j, k] * x[k]
        x[j] /= A[j, j]
    for j in range(m - 1, -1, -1):
        for k in range(j + 1, m):
            x[j] -= A[k, j] * x[k]
        x[j] /= A[j, j]
    return x


@numba.njit(cache=True, nogil=True)
def _largest_difference(a: Any, b: Any) -> float:
    """Return the largest absolute difference, 0 for empty arrays."""
    largest = 0.0
    for i in range(len(a)):
        largest = max(largest, abs(a[i] - b[i]))
    return largest


# --- small quadratic programs with many hinges, as the ensemble rankers solve for every query -------------------------
#
# Minimize ½ w'Qw + C Σ max(0, 1 - w·b_i) over w ≥ 0, with few variables (rankers) and many hinges (judged queries).


TOLERANCE = 1e-10
"""Largest residual of the optimality conditions, in units of a margin."""

GAP_TOLERANCE = 1e-9
"""Largest duality gap, relative to the objective."""

_ROUGH = 0.1  # tolerance while it is not yet known which hinges matter
_BAND = 0.1  # hinges with a margin this close to 1 are solved for from the start


class HingeSolution(NamedTuple):
    """The minimum, and the multipliers that prove it (Hoi and Jin 2008, Eqs. 11 and 12)."""

    w: Float64
    """The minimum; no entry is negative; shape (variables,)."""
    alpha: Float64
    """One multiplier per hinge, from 0 (no loss) to C (loss); shape (hinges,)."""
    eta: Float64
    """One multiplier per variable, above 0 only if w is 0; shape (variables,)."""
    residual: float
    """Residual of the optimality conditions, in units of a margin."""
    n_steps: int
    """Newton steps taken."""


def solve_hinge_qp(Q: Float64, B: Float64, C: float = 1.0, *, start: HingeSolution | None = None) -> HingeSolution:
    """Minimize ½ w'Qw + C Σ max(0, 1 - w·b_i) over w ≥ 0.

    Uses the method of multipliers on the hinges that matter. Its inner problems are solved by Newton steps, which can
    move any number of hinges across their corner at once.

    Parameters
    ----------
    Q
        Positive definite, of shape (variables, variables).
    B
        One row per hinge, of shape (hinges, variables).
    C
        Cost of a loss of 1.
    start
        Solution of a problem with the same hinges, the same C and another Q.

    Examples
    --------
    >>> solution = solve_hinge_qp(np.eye(2), np.array([[2.0, 0.0], [1.0, -1.0]]), C=0.1)
    >>> solution.w.round(6).tolist(), solution.alpha.round(6).tolist()
    ([0.3, 0.0], [0.1, 0.1])
    """
    n_hinges, n_variables = B.shape
    if start is None:
        w, alpha, eta = np.zeros(n_variables), np.zeros(n_hinges), np.zeros(n_variables)
    else:
        w, alpha, eta = start.w.copy(), start.alpha.copy(), start.eta.copy()
    matrix, rows = np.ascontiguousarray(Q, dtype=np.float64), np.ascontiguousarray(B, dtype=np.float64)
    residual, n_steps = solve_in_place(matrix, rows, float(C), w, alpha, eta)
    return HingeSolution(w, alpha, eta, float(residual), int(n_steps))


@numba.njit(cache=True, nogil=True)
def solve_in_place(Q: Any, B: Any, C: float, w: Any, alpha: Any, eta: Any) -> tuple[float, int]:
    """Turn w, alpha and eta into the solution; return the residual and the number of Newton steps.

    Hinges far from their corner stay on their side of it, so they enter as nothing or as a linear term, and only the
    others are solved for. Hinges that turn out to have changed sides are added until there are none.
    """
    n, m = B.shape
    margins = np.empty(n)
    multiply(B, w, margins)
    chosen = np.zeros(n, dtype=np.bool_)
    _choose(margins, alpha, C, _BAND, chosen)
    tolerance, gap_tolerance = _ROUGH, np.inf
    n_steps = 0
    while True:
        linear = np.zeros(m)
        constant = 0.0
        for i in range(n):
            if not chosen[i] and alpha[i] > 0.0:
                constant += C
                for j in range(m):
                    linear[j] += C * B[i, j]
        own = alpha[chosen]
        residual, steps = method_of_multipliers(
            Q, linear, constant, B[chosen], C, tolerance, gap_tolerance, w, own, eta
        )
        alpha[chosen] = own
        n_steps += steps
        multiply(B, w, margins)
        if not _choose(margins, alpha, C, 0.0, chosen):
            if tolerance == TOLERANCE:
                break
            # It is now known which hinges matter, so the last and longest run needs only a few of them.
            tolerance, gap_tolerance = TOLERANCE, GAP_TOLERANCE
            chosen[:] = False
            _choose(margins, alpha, C, _BAND, chosen)
    project(w, eta, w)
    return residual, n_steps


@numba.njit(cache=True, nogil=True)
def _choose(margins: Any, alpha: Any, C: float, band: float, chosen: Any) -> bool:
    """Choose the hinges near their corner or inconsistent with their multiplier; return whether any is new."""
    found = False
    for i in range(len(margins)):
        loss = 1.0 - margins[i]
        if not chosen[i] and not (
            (alpha[i] == 0.0 and loss <= TOLERANCE - band) or (alpha[i] == C and loss >= band - TOLERANCE)
        ):
            chosen[i] = True
            found = True
    return found


# --- the parts of `EnsembleRanker`: normalized scores, similarity of queries, their graph, and agreement of rankers ---


Normalize = Literal["minmax", "standard", "none"]


def normalize(scores: Float64, offsets: NDArray[np.int64], how: Normalize) -> tuple[Float64, Float64]:
    """Shift and scale the scores of each ranker within each query.

    Parameters
    ----------
    scores
        One row per candidate, one column per ranker.
    offsets
        Query i owns rows ``offsets[i]:offsets[i + 1]``.
    how
        "minmax": to the range 0 to 1. "standard": to mean 0 and standard deviation 1. "none": unchanged.

    Returns
    -------
    float64 array of shape (rows, rankers)
        Normalized scores; 0 if a ranker gives all candidates of a query the same score.
    float64 array of shape (queries, rankers)
        Scale factors.

    Examples
    --------
    >>> scores, factor = normalize(np.array([[10.0], [30.0], [20.0]]), np.array([0, 3]), "minmax")
    >>> scores.ravel().tolist(), factor.tolist()
    ([0.0, 1.0, 0.5], [[0.05]])
    """
    starts, sizes = offsets[:-1], np.diff(offsets)
    if how == "none":
        return scores, np.ones((len(starts), scores.shape[1]))
    rows = np.repeat(np.arange(len(starts)), sizes)
    origin = np.minimum.reduceat(scores, starts)
    width = np.maximum.reduceat(scores, starts) - origin
    constant = width == 0.0
    if how == "standard":
        origin = origin + np.add.reduceat(scores - origin[rows], starts) / sizes[:, None]
        width = np.sqrt(np.add.reduceat((scores - origin[rows]) ** 2, starts) / sizes[:, None])
    factor = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, width))
    return (scores - origin[rows]) * factor[rows], factor


Distance = Literal["spectral", "bregman"]
DISTANCES: tuple[Distance, ...] = get_args(Distance)


def matrix_distances(
    scores: Float64,
    labels: NDArray[np.int8],
    offsets: NDArray[np.int64],
    distance: Distance,
    *,
    theta: float = 0.5,
    delta: float = 1.0,
) -> Float64:
    """Return d(A_i, R_ij) for each query i and base ranker j, with A and R of the two functions below.

    Both distances are among the paper's examples: ``"spectral"`` is the norm that Euclidean vectors induce,
    ``"bregman"`` the Bregman divergence ½|A - R|² of the squared Frobenius norm.

    Examples
    --------
    >>> scores = np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    >>> labels = np.array([1, 0, -1], dtype=np.int8)
    >>> matrix_distances(scores, labels, np.array([0, 3]), "bregman").round(3).tolist()
    [[1.583, 2.667]]
    """
    distances = np.empty((len(offsets) - 1, scores.shape[1]))
    for query, (start, stop) in enumerate(pairwise(offsets)):
        wanted = relevance_matrix(labels[start:stop], theta)
        for ranker in range(scores.shape[1]):
            difference = wanted - transition_matrix(scores[start:stop, ranker], delta)
            if distance == "spectral":
                distances[query, ranker] = np.linalg.norm(difference, 2)
            else:
                distances[query, ranker] = 0.5 * np.sum(difference**2)
    return distances


def relevance_matrix(labels: NDArray[np.int8], theta: float) -> Float64:
    """Return A of Eq. 5: 1 for (+1 before -1), θ for (+1 before 0), and negative values for the reverse."""
    better, worse = labels[:, None], labels[None, :]
    above = ((better == 1) & (worse == -1)) + theta * ((better == 1) & (worse == 0))
    difference: Float64 = above - above.T
    return difference


def transition_matrix(scores: Float64, delta: float) -> Float64:
    """Return R: 1 if one document is before another, plus δ on the diagonal, with columns divided by their sum."""
    before = (scores[:, None] > scores[None, :]) + delta * np.eye(len(scores))
    normalized: Float64 = before / before.sum(axis=0)
    return normalized


@numba.njit(cache=True, nogil=True)
def smoothness(G: Any, n_neighbors: int) -> Any:
    """Return G'LG, L being the normalized Laplacian of the k-nearest-neighbor graph of the rows of G.

    Two documents are connected if one is among the k nearest of the other in Euclidean distance. All documents that
    tie with the k-th count, so the graph does not depend on the order of rows.
    """
    n, m = G.shape
    connected = _neighbor_graph(G, min(n_neighbors, n - 1))
    scaled = np.zeros((n, m))
    for row in range(n):
        degree = connected[row].sum()
        if degree > 0:
            scaled[row] = G[row] / np.sqrt(degree)
    # L = I - D^-1/2 S D^-1/2, so G'LG = G'G - scaled' S scaled.
    matrix = np.zeros((m, m))
    neighbor_sum = np.empty(m)
    for row in range(n):
        neighbor_sum[:] = 0.0
        for other in range(n):
            if connected[row, other]:
                for j in range(m):
                    neighbor_sum[j] += scaled[other, j]
        for j in range(m):
            for k in range(m):
                matrix[j, k] += G[row, j] * G[row, k] - scaled[row, j] * neighbor_sum[k]
    return 0.5 * (matrix + matrix.T)


@numba.njit(cache=True, nogil=True)
def _neighbor_graph(G: Any, k: int) -> Any:
    """Return the adjacency matrix: symmetric, without self-loops."""
    n, m = G.shape
    columns = np.ascontiguousarray(G.T)
    connected = np.zeros((n, n), dtype=np.bool_)
    distance = np.empty(n)
    nearest = np.empty(k)
    if k < 1:
        return connected
    for row in range(n):
        distance[:] = 0.0
        for j in range(m):
            for other in range(n):
                step = columns[j, other] - columns[j, row]
                distance[other] += step * step
        distance[row] = np.inf
        nearest[:] = np.inf
        for other in range(n):
            if distance[other] < nearest[k - 1]:
                place = k - 1
                while place > 0 and nearest[place - 1] > distance[other]:
                    nearest[place] = nearest[place - 1]
                    place -= 1
                nearest[place] = distance[other]
        for other in range(n):
            if distance[other] <= nearest[k - 1]:
                connected[row, other] = True
                connected[other, row] = True
    return connected


@numba.njit(cache=True, nogil=True)
def query_weights(
    G: Any, offsets: Any, gamma: float, n_neighbors: int, B: Any, C: float, w: Any, alpha: Any, eta: Any
) -> tuple[Any, Any]:
    """Return the weights of each query (Eq. 10) and their residuals; each solve starts from the shared solution."""
    n_queries, m = len(offsets) - 1, G.shape[1]
    weights = np.empty((n_queries, m))
    residuals = np.empty(n_queries)
    for query in range(n_queries):
        Q = np.eye(m) + gamma * smoothness(G[offsets[query] : offsets[query + 1]], n_neighbors)
        own, own_alpha, own_eta = w.copy(), alpha.copy(), eta.copy()
        residuals[query], _ = solve_in_place(Q, B, C, own, own_alpha, own_eta)
        weights[query] = own
    return weights, residuals


def agreement(
    scores: Float64,
    labels: NDArray[np.int8],
    offsets: NDArray[np.int64],
    *,
    theta: float = 0.5,
    delta: float = 1.0,
    weights: ArrayLike | None = None,
) -> Float64:
    """Return b[i, j] = tr(A_i' R_ij) for each query i and base ranker j (Eqs. 5 and 6).

    A holds the order that the grades ask for: 1 for (+1 before -1), θ for (+1 before 0), and negative values for the
    reverse. R holds the order of the ranker: R~[k, l] = 1 if k is before l, plus δ on the diagonal, with columns
    divided by their sum. Documents with equal scores are not before each other.

    Parameters
    ----------
    scores
        One row per candidate, one column per base ranker.
    labels
        +1, 0 or -1 for each candidate.
    offsets
        Query i owns rows ``offsets[i]:offsets[i + 1]``.
    theta, delta
        θ and δ.
    weights
        How often each candidate counts, once by default.

    Examples
    --------
    >>> scores = np.array([[3.0, 1.0], [2.0, 2.0], [1.0, 3.0]])
    >>> agreement(scores, np.array([1, 0, -1], dtype=np.int8), np.array([0, 3])).round(3).tolist()
    [[0.583, -0.5]]
    """
    counted = np.ones(len(labels)) if weights is None else np.asarray(weights, dtype=np.float64)
    values = np.ascontiguousarray(scores, dtype=np.float64)
    return np.asarray(_agreement(values, labels, counted, offsets, theta, delta))


@numba.njit(cache=True, nogil=True)
def _agreement(scores: Any, labels: Any, weights: Any, offsets: Any, theta: float, delta: float) -> Any:
    """Go down each ranking and count the labels seen so far: column l of R is 1 / (documents before l + δ)."""
    n_queries, n_rankers = len(offsets) - 1, scores.shape[1]
    b = np.zeros((n_queries, n_rankers))
    seen = np.zeros(3)
    tied = np.zeros(3)
    for query in range(n_queries):
        start, stop = offsets[query], offsets[query + 1]
        for ranker in range(n_rankers):
            values = scores[start:stop, ranker].copy()
            order = np.argsort(-values)
            seen[:] = 0
            tied[:] = 0
            for place in range(stop - start):
                row = order[place]
                if place > 0 and values[row] < values[order[place - 1]]:
                    seen += tied
                    tied[:] = 0
                label, weight = labels[start + row], weights[start + row]
                if label == 1:
                    wrong = -(seen[0] + theta * seen[1])
                    b[query, ranker] += weight * wrong / (seen.sum() + delta)
                else:
                    right = seen[2] if label == -1 else theta * seen[2]
                    b[query, ranker] += weight * right / (seen.sum() + delta)
                tied[label + 1] += weight
    return b


# --- SER and SSER: base rankers weighted by their agreement with the grades, and by the candidates of the query -------


class EnsembleRanker(WeightedRanker, Ranker):
    """Base rankers combined with nonnegative weights (Hoi and Jin, AAAI 2008).

    With ``gamma=0`` this is SER: one weight vector for all queries (Eq. 6). With ``gamma > 0`` it is SSER: every query
    has its own weights, chosen so that similar candidates also get similar scores (Eq. 10). This needs the candidates
    of the query but no judgments.

    The paper's Eq. 8 is not its Eq. 10: the sum γ/2 Σ_kl s_kl (f_k - f_l)² is γ w'G'(D - S)Gw, with the unnormalized
    Laplacian and no factor ½. With d neighbors each it is 2d times the ½ γ w'G'LGw of Eq. 10. This class solves Eq. 10,
    as the paper does. Eq. 13, w = H Σ α_i b_i, omits the multipliers η of w ≥ 0 that are in the dual (Eqs. 11 and 12);
    weights could be negative. Here w = H (Σ α_i b_i + η), as the conditions of optimality require.

    Parameters
    ----------
    gamma : float
        How much the similarity of candidates counts. 0.5 in the paper; choose it on validation queries.
    columns : sequence of str or int, or None
        Columns of X to use as base rankers, by name or position. None means all columns, or no columns if `rankers` are
        given.
    rankers : sequence of fitted rankers, or None
        Further base rankers, fitted on the same features, preferably on other queries than the ensemble.
    normalize : {"minmax", "standard", "none"}
        How the scores of a base ranker are scaled within each query: to the range 0 to 1, to mean 0 and standard
        deviation 1, or not at all.
    orient : bool
        Whether to reverse base rankers that rank worse documents first in the training queries, such as the length of a
        URL. With False, as in the paper, such a ranker gets no weight.
    C : float
        The cost of disagreement with the grades of a query.
    theta : float
        θ, the weight of "relevant before possibly relevant" compared with 1 for "relevant before irrelevant".
    delta : float
        δ, the smoothing of the ranking matrix.
    similarity : {"trace", "spectral", "bregman"}
        How the order of a base ranker is compared with the grades: tr(A'R) (Eq. 6), or exp(-d(A, R)/λ) with the
        spectral norm or the squared Frobenius norm as d (Eq. 7). The last two compare matrices with one row per
        candidate, so they are slow, and they do not support row weights.
    similarity_scale : float or None
        λ of Eq. 7. None means the median distance of the training queries.
    n_neighbors : int
        Number of most similar candidates that each candidate is connected to.
    relevant_from : float or None
        The lowest relevant grade (+1). None means the highest grade of the training queries.
    possible_from : float or None
        The lowest possibly relevant grade (0); lower grades are irrelevant (-1). None means all grades above 0.
    missing : {"error", "zero", "mean"}
        What a missing feature becomes.

    Attributes
    ----------
    coef_ : float64 array of shape (base rankers,)
        SER's weights, for normalized scores: columns first, then rankers.
    sign_ : float64 array of shape (base rankers,)
        -1 for reversed base rankers, 1 for others.
    solution_ : HingeSolution
        SER's weights and the multipliers that the weights of each query start from.
    agreement_ : float64 array of shape (queries, base rankers)
        The agreement of each base ranker with the grades of each training query (b in the paper), without queries for
        which it is 0.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.2], [3.0, 0.1], [2.0, 0.9], [5.0, 0.4]])
    >>> ranker = EnsembleRanker().fit(X, y=[0, 1, 0, 1], qid=["a", "a", "b", "b"])
    >>> ranker.coef_.round(6)
    array([1., 1.])
    >>> ranker.predict(X, qid=["a", "a", "b", "b"]).round(6)
    array([0., 2., 0., 2.])
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(weights=True, missing=True)

    def __init__(
        self,
        gamma: float = 0.0,
        *,
        columns: Sequence[str | int] | None = None,
        rankers: Sequence[Ranker] | None = None,
        normalize: Normalize = "minmax",
        orient: bool = True,
        C: float = 1.0,
        theta: float = 0.5,
        delta: float = 1.0,
        similarity: Literal["trace"] | Distance = "trace",
        similarity_scale: float | None = None,
        n_neighbors: int = 5,
        relevant_from: float | None = None,
        possible_from: float | None = None,
        missing: Missing = "mean",
    ) -> None:
        self.gamma = gamma
        self.columns = columns
        self.rankers = rankers
        self.normalize = normalize
        self.orient = orient
        self.C = C
        self.theta = theta
        self.delta = delta
        self.similarity = similarity
        self.similarity_scale = similarity_scale
        self.n_neighbors = n_neighbors
        self.relevant_from = relevant_from
        self.possible_from = possible_from
        self.missing = missing

    @classmethod
    def as_published(cls, gamma: float = 0.5, **settings: Any) -> Self:
        """Return SSER of the paper (Eq. 10, Figures 1 to 3), or SER (Eq. 6) with ``gamma=0``.

        C = 1, δ = 1, θ = 0.5 and five neighbors are its values. Scores are used as they are, and no ranker is reversed.
        The paper chooses γ on validation queries, and finds that 0.5 is nearly as good as the best.

        Examples
        --------
        >>> EnsembleRanker.as_published()
        EnsembleRanker(gamma=0.5, normalize='none', orient=False)
        """
        published: dict[str, Any] = {"gamma": gamma, "normalize": "none", "orient": False}
        return cls(**published | settings)

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do with its current settings."""
        return replace(self._capabilities, weights=not self.rankers)

    def _fit(self, queries: QuerySet) -> None:
        self._check_settings(queries)
        self.columns_ = self._find_columns(queries)
        self.preparer_ = Preparer("none", self.missing).fit(_columns_of(queries, self.columns_))
        self.sign_: Float64 = np.ones(len(self.columns_) + len(self.rankers or ()))
        b = self._agreement(queries)
        if self.orient and np.any(b.sum(axis=0) < 0.0):
            self.sign_ = np.where(b.sum(axis=0) < 0.0, -1.0, 1.0)
            b = self._agreement(queries)
        if self.similarity != "trace":
            b = self._matrix_similarity(queries, self.similarity)
        self.agreement_: Float64 = b[np.any(b != 0.0, axis=1)]
        self.solution_ = solve_hinge_qp(np.eye(b.shape[1]), self.agreement_, self.C)
        self.coef_: Float64 = self.solution_.w
        _check_solved(self.solution_.residual)
        if not np.any(self.coef_):
            warnings.warn(
                "no base ranker agrees with the grades, so all weights and scores are 0: use other base rankers, or "
                "set orient=True",
                UserWarning,
                stacklevel=3,
            )

    def _predict(self, queries: QuerySet) -> Float64:
        scores, _ = self._normalized(queries)
        weights = self._base_weights(scores, queries)
        combined: Float64 = np.einsum("ij,ij->i", scores, weights[queries.query_of_row])
        return combined

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        if self.rankers:
            raise ParameterError("there are no weights for features because rankers= are combined: use columns= only")
        scores, factor = self._normalized(queries)
        weights = np.zeros((len(queries), queries.n_features))
        weights[:, self.columns_] = self._base_weights(scores, queries) * factor * self.sign_
        return exact_weights(queries, weights, self.missing)

    def get_state(self) -> State:
        """Return everything learned, including the states of the base rankers."""
        solution = self.solution_
        arrays: State = {
            "columns": self.columns_,
            "sign": self.sign_,
            "agreement": self.agreement_,
            "w": solution.w,
            "alpha": solution.alpha,
            "eta": solution.eta,
            "residual": np.array(solution.residual),
            "n_steps": np.array(solution.n_steps),
        }
        rankers = {f"ranker{i}": ranker.get_state() for i, ranker in enumerate(self.rankers or ())}
        return nest(ensemble=arrays, preparer=self.preparer_.get_state(), **rankers)

    def set_state(self, state: State) -> Self:
        """Restore everything learned, also in `rankers`."""
        # Copied from the memory map: Numba would compile again for read-only arrays.
        arrays = {name: np.array(array) for name, array in unnest(state, "ensemble").items()}
        self.columns_, self.sign_, self.agreement_ = arrays["columns"], arrays["sign"], arrays["agreement"]
        self.solution_ = HingeSolution(
            arrays["w"], arrays["alpha"], arrays["eta"], float(arrays["residual"]), int(arrays["n_steps"])
        )
        self.coef_ = self.solution_.w
        self.preparer_ = Preparer("none", self.missing).set_state(unnest(state, "preparer"))
        for i, ranker in enumerate(self.rankers or ()):
            ranker.feature_names_, ranker.n_features_in_ = self.feature_names_, self.n_features_in_
            ranker.set_state(unnest(state, f"ranker{i}"))
        return self

    def __sklearn_clone__(self) -> Self:
        # Base rankers are fitted by the caller; the default clone would return them unfitted.
        return type(self)(**self.get_params(deep=False))

    def _check_settings(self, queries: QuerySet) -> None:
        for name, value in (("gamma", self.gamma), ("theta", self.theta)):
            if not 0 <= value < np.inf:
                raise ParameterError(f"{name} must be a number from 0, got {value!r}")
        for name, value in (("C", self.C), ("delta", self.delta)):
            if not 0 < value < np.inf:
                raise ParameterError(f"{name} must be a positive number, got {value!r}")
        if self.n_neighbors < 1:
            raise ParameterError(f"n_neighbors must be at least 1, got {self.n_neighbors!r}")
        if self.similarity not in ("trace", *DISTANCES):
            raise ParameterError(f"similarity must be 'trace', 'spectral' or 'bregman', got {self.similarity!r}")
        if self.similarity_scale is not None and not 0 < self.similarity_scale < np.inf:
            raise ParameterError(f"similarity_scale must be a positive number or None, got {self.similarity_scale!r}")
        if self.normalize not in get_args(Normalize):
            raise ParameterError(f"normalize must be 'minmax', 'standard' or 'none', got {self.normalize!r}")
        for i, ranker in enumerate(self.rankers or ()):
            check_is_fitted(ranker, msg=f"rankers[{i}] is not fitted: fit it first, preferably on other queries")
            if ranker.feature_names_ != queries.feature_names:
                raise DataError(
                    f"rankers[{i}] was fitted on features {list(ranker.feature_names_)}, the ensemble has "
                    f"{list(queries.feature_names)}: fit both on the same features"
                )

    def _find_columns(self, queries: QuerySet) -> NDArray[np.int64]:
        if self.columns is None:
            return np.arange(0 if self.rankers else queries.n_features)
        names = {name: i for i, name in enumerate(queries.feature_names)}
        positions = [names.get(column, -1) if isinstance(column, str) else column for column in self.columns]
        for column, i in zip(self.columns, positions, strict=True):
            if not 0 <= i < queries.n_features:
                raise ParameterError(
                    f"columns contains {column!r}, which is not one of the {queries.n_features} features: "
                    f"{', '.join(queries.feature_names)}"
                )
        if not positions and not self.rankers:
            raise ParameterError("there is no base ranker: set columns or rankers, or leave both out")
        return np.array(positions, dtype=np.int64)

    def _agreement(self, queries: QuerySet) -> Float64:
        """Return the agreement of each base ranker with the grades of each query."""
        scores, labels, offsets = self._base_scores(queries), self._labels(queries), np.array(queries.offsets)
        weights = queries.sample_weight
        return agreement(scores, labels, offsets, theta=self.theta, delta=self.delta, weights=weights)

    def _matrix_similarity(self, queries: QuerySet, distance: Distance) -> Float64:
        """Return exp(-d(A, R)/λ) of each base ranker and query (Eq. 7); 0 for queries that prefer no document."""
        if queries.sample_weight is not None:
            raise ParameterError(f"similarity={distance!r} does not support row weights: use 'trace', or no weights")
        labels = self._labels(queries)
        distances = matrix_distances(
            self._base_scores(queries), labels, queries.offsets, distance, theta=self.theta, delta=self.delta
        )
        relevant = np.maximum.reduceat(labels, queries.offsets[:-1]) == 1
        judged = relevant & (np.minimum.reduceat(labels, queries.offsets[:-1]) < 1)
        scale = self.similarity_scale
        if scale is None:
            scale = float(np.median(distances[judged])) if judged.any() else 1.0
        similar: Float64 = np.exp(-distances / scale) * judged[:, None]
        return similar

    def _labels(self, queries: QuerySet) -> NDArray[np.int8]:
        """Return +1, 0 or -1 for each candidate: relevant, possibly relevant, irrelevant."""
        relevant = queries.grades.max() if self.relevant_from is None else self.relevant_from
        possible = queries.grades > 0 if self.possible_from is None else queries.grades >= self.possible_from
        labels = np.where(queries.grades >= relevant, 1, np.where(possible, 0, -1))
        return labels.astype(np.int8)

    def _base_scores(self, queries: QuerySet) -> Float64:
        """Return one column of scores per base ranker; higher is better."""
        selected = _columns_of(queries, self.columns_)
        scores = np.empty((queries.n_rows, len(self.sign_)))
        scores[:, : len(self.columns_)] = self.preparer_.transform(selected.X, selected)
        for i, ranker in enumerate(self.rankers or (), start=len(self.columns_)):
            scores[:, i] = ranker.predict(queries)
        scores *= self.sign_
        return scores

    def _normalized(self, queries: QuerySet) -> tuple[Float64, Float64]:
        """Return the scaled base scores, and the factor of each query and base ranker."""
        return normalize(self._base_scores(queries), queries.offsets, self.normalize)

    def _base_weights(self, scores: Float64, queries: QuerySet) -> Float64:
        """Return the weights of each query, for normalized scores."""
        if self.gamma == 0:
            return np.tile(self.coef_, (len(queries), 1))
        shared = self.solution_
        weights, residuals = query_weights(
            scores,
            np.array(queries.offsets),
            float(self.gamma),
            int(self.n_neighbors),
            self.agreement_,
            float(self.C),
            shared.w,
            shared.alpha,
            shared.eta,
        )
        _check_solved(residuals.max(initial=0.0))
        return np.asarray(weights)


def _columns_of(queries: QuerySet, columns: NDArray[np.int64]) -> QuerySet:
    names = tuple(queries.feature_names[i] for i in columns)
    return queries.replace(X=queries.X[:, columns], feature_names=names)


def _check_solved(residual: float) -> None:
    if not residual <= 1e-6:
        warnings.warn(
            f"the weights are not optimal (residual {residual:.1e} of a margin): check for extreme grades, C or gamma",
            ConvergenceWarning,
            stacklevel=4,
        )
