"""Pairs that are never made: loss, gradient and Hessian products of pairwise hinges over ragged groups.

Rows of a query are sorted by grade, best first, so the documents that row i should beat are one stretch from
``lower[i]`` to the end of its query. The loops over that stretch are branch-free and contiguous; a query's rows stay
in the first-level cache from scores to gradient, so each function reads the features once.

Both hinges are one family. With violation t = 1 - (s_i - s_j), m = min(max(t, 0), μ) and scale c, the loss is
c m (2t - m): quadratic up to μ, linear beyond. μ = ∞, c = 1 is the squared hinge; μ → 0, c = 1/(2μ) the plain one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.learn.base import Float64

_FAST = {"reassoc", "contract", "nsz", "arcp"}  # sums may be reordered; NaN and infinity keep their meaning


@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """Judged queries laid out for the pair loops.

    Attributes
    ----------
    X : float32 array
        Rows sorted by grade within each query, best first.
    offsets : int64 array
        Rows of each query.
    lower : int64 array
        For each row the first row of its query with a lower grade (the end of the query where there is none).
    pairs : int64 array
        Number of pairs of each query.
    """

    X: NDArray[np.float32]
    offsets: NDArray[np.int64]
    lower: NDArray[np.int64]
    pairs: NDArray[np.int64]

    @classmethod
    def of(cls, queries: QuerySet) -> JudgedPairs:
        """Sort once."""
        grades = queries.grades
        order = np.lexsort((-grades, queries.query_of_row))
        lower, pairs = _lower_rows(grades[order], queries.offsets)
        return cls(np.ascontiguousarray(queries.X[order]), queries.offsets, lower, pairs)


@dataclass(frozen=True)
class Hinge:
    """One member of the hinge family: quadratic up to `width`, linear beyond, times `scale`."""

    width: float
    scale: float


SQUARED = Hinge(width=np.inf, scale=1.0)


def smooth(width: float) -> Hinge:
    """The plain hinge with its corner rounded: within width / 2 of it everywhere."""
    return Hinge(width=width, scale=0.5 / width)


@dataclass(frozen=True, eq=False)
class PairObjective:
    """λ/2 |w - w0|² + Σ_q ω_q Σ_pairs loss, for some of the queries of a `JudgedPairs`.

    Attributes
    ----------
    pairs
        The judged queries.
    queries
        Which of them.
    weights
        ω_q, what one pair of each weighs; they sum to one over all pairs.
    penalty, prior
        λ and w0.
    hinge
        The loss.
    """

    pairs: JudgedPairs
    queries: NDArray[np.int64]
    weights: Float64
    penalty: float
    prior: Float64
    hinge: Hinge

    def value_and_gradient(self, w: Float64, scores: Float64) -> tuple[float, Float64]:
        """At w; `scores` (one per row) is filled for `hessian_product`."""
        away = w - self.prior
        gradient = self.penalty * away
        loss = _loss_gradient(*self._data(), w, self.hinge.width, self.hinge.scale, scores, gradient)
        return loss + 0.5 * self.penalty * float(away @ away), gradient

    def hessian_product(self, scores: Float64, direction: Float64) -> Float64:
        """(Generalised) Hessian at the point of `scores`, times a direction."""
        product = self.penalty * direction
        _hessian_product(*self._data(), scores, direction, self.hinge.width, self.hinge.scale, product)
        return product

    def _data(self) -> tuple[NDArray[Any], ...]:
        return self.pairs.X, self.pairs.offsets, self.pairs.lower, self.queries, self.weights


@numba.njit(cache=True, nogil=True)
def _lower_rows(y, offsets):  # type: ignore[no-untyped-def]
    """Where the lower grades start for each row, and the pairs of each query."""
    lower = np.empty(len(y), dtype=np.int64)
    pairs = np.zeros(len(offsets) - 1, dtype=np.int64)
    for q in range(len(offsets) - 1):
        end = offsets[q + 1]
        for i in range(offsets[q + 1] - 1, offsets[q] - 1, -1):
            if i + 1 < offsets[q + 1] and y[i] != y[i + 1]:
                end = i + 1
            lower[i] = end
            pairs[q] += offsets[q + 1] - end
    return lower, pairs


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _scores_of(X, start, stop, w, scores):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        score = 0.0
        for a in range(len(w)):
            score += X[i, a] * w[a]
        scores[i] = score


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _add_rows(X, start, stop, factors, total):  # type: ignore[no-untyped-def]
    for i in range(start, stop):
        factor = factors[i - start]
        if factor != 0.0:
            for a in range(len(total)):
                total[a] += factor * X[i, a]


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _loss_gradient(X, offsets, lower, queries, weights, w, width, scale, scores, gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of the pair loss to `gradient`, fill `scores`, return the loss."""
    total = 0.0
    for k in range(len(queries)):
        start, stop = offsets[queries[k]], offsets[queries[k] + 1]
        _scores_of(X, start, stop, w, scores)
        if weights[k] == 0.0 or lower[start] == stop:
            continue
        slope = np.zeros(stop - start)
        loss = 0.0
        for i in range(start, stop):
            needed = 1.0 - scores[i]
            pushed = 0.0
            for j in range(lower[i], stop):
                violation = needed + scores[j]
                m = min(max(violation, 0.0), width)
                loss += m * (2.0 * violation - m)
                pushed += m
                slope[j - start] += m
            slope[i - start] -= pushed
        slope *= 2.0 * scale * weights[k]
        _add_rows(X, start, stop, slope, gradient)
        total += scale * weights[k] * loss
    return total


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _hessian_product(X, offsets, lower, queries, weights, scores, direction, width, scale, product):  # type: ignore[no-untyped-def]
    """Add the Hessian of the pair loss times `direction`: the Laplacian of the pairs in the quadratic part."""
    for k in range(len(queries)):
        start, stop = offsets[queries[k]], offsets[queries[k] + 1]
        if weights[k] == 0.0 or lower[start] == stop:
            continue
        moved = np.empty(stop - start)
        for i in range(start, stop):
            step = 0.0
            for a in range(len(direction)):
                step += X[i, a] * direction[a]
            moved[i - start] = step
        bent = np.zeros(stop - start)
        for i in range(start, stop):
            needed = 1.0 - scores[i]
            here = moved[i - start]
            pulled = 0.0
            for j in range(lower[i], stop):
                violation = needed + scores[j]
                active = 1.0 if 0.0 < violation < width else 0.0
                change = active * (here - moved[j - start])
                pulled += change
                bent[j - start] -= change
            bent[i - start] += pulled
        bent *= 2.0 * scale * weights[k]
        _add_rows(X, start, stop, bent, product)
