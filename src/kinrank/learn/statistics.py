"""Additive statistics of pairwise least squares, and their solver: a matrix, a vector and a count per query.

With L_q the Laplacian of query q's pair graph (an edge between any two documents of different grades), RankRLS
needs only

    A_q = X_q' L_q X_q        the Gram matrix of its pair differences,
    b_q = X_q' (wins - losses)    the sum of its pair differences,
    p_q                       their number,

and the weights for any set of queries are w = (Σ A_q / P + λI)⁻¹ (Σ b_q / P + λ w0), P = Σ p_q. So a local model is
a sum and a solve, leaving one query out is a subtraction, and new judgments are an addition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.learn.base import check_penalty, check_prior

# --- solver of RankRLS: ridge regression from summed statistics, with or without sign constraints on the weights ------
#
# With A = Σ A_q / P + λI and b = Σ b_q / P + λ w0 the weights minimize ½ w'Aw - b'w. Without constraints they are
# A⁻¹b. Nonnegative weights are found by block principal pivoting (Júdice and Pires 1994), which is exact and finite:
# guess which weights are zero, solve for the others, then free or fix the weights that violate the optimality
# conditions, and repeat. A weight that must not be positive is handled by negating its feature.


_SLACK = 1e-12  # tolerance of a sign, relative to the numbers it is computed from
_PATIENCE = 3  # full exchanges allowed without progress
_ROUNDS = 10_000  # upper bound: the proof of termination assumes exact arithmetic


@numba.njit(cache=True, nogil=True)
def solve_rows(gram, moment, pairs, ridge, center, signs, weights):  # type: ignore[no-untyped-def]
    """Solve each row of statistics; `signs` is 1 (w ≥ 0), -1 (w ≤ 0) or 0 (any) for each feature.

    The weights of a row without pairs are the center, set to 0 if it violates a sign.
    """
    features = moment.shape[1]
    system = np.empty((features, features))
    right = np.empty(features)
    signed = np.any(signs != 0)
    for s in range(len(pairs)):
        total = pairs[s]
        w = weights[s]
        if -1e-6 < total <= 0.0:
            for a in range(features):
                w[a] = center[a] if center[a] * signs[a] >= 0.0 else 0.0
            continue
        if total < 0.0:
            raise ValueError("a negative number of pairs")
        k = 0
        for a in range(features):
            for b in range(a, features):
                system[b, a] = system[a, b] = gram[s, k] / total
                k += 1
            system[a, a] += ridge
            right[a] = moment[s, a] / total + ridge * center[a]
        if signed:
            _solve_signed(system, right, signs, w)
        else:
            w[:] = right
            _solve_positive_definite(system, w)


@numba.njit(cache=True, nogil=True)
def _solve_positive_definite(system, w):  # type: ignore[no-untyped-def]
    """Replace w with system⁻¹ w, by Cholesky."""
    features = len(w)
    lower = np.linalg.cholesky(system)
    for a in range(features):
        for b in range(a):
            w[a] -= lower[a, b] * w[b]
        w[a] /= lower[a, a]
    for a in range(features - 1, -1, -1):
        w[a] /= lower[a, a]
        for b in range(a):
            w[b] -= lower[a, b] * w[a]


@numba.njit(cache=True, nogil=True)
def _solve_signed(system, right, signs, w):  # type: ignore[no-untyped-def]
    """Solve for the best w with the required signs; overwrites system and right.

    The system is first scaled to a unit diagonal, so that the tolerance does not depend on the features' units.
    """
    features = len(w)
    unit = np.sqrt(np.diag(system))
    for a in range(features):
        right[a] /= unit[a]
        for b in range(features):
            system[a, b] /= unit[a] * unit[b]
    w[:] = right
    _solve_positive_definite(system, w)
    free = np.ones(features, dtype=np.bool_)  # the others are fixed at zero
    violations = np.empty(features, dtype=np.int64)
    fewest, patience = features + 1, _PATIENCE
    for _ in range(_ROUNDS):
        count = _violations(system, right, signs, free, w, violations)
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, _PATIENCE
        else:
            patience -= 1
        # Exchanging all is fast but may cycle; exchanging only the last never does (Murty 1974).
        first = 0 if patience >= 0 else count - 1
        for c in range(first, count):
            free[violations[c]] = not free[violations[c]]
        _solve_free(system, right, free, w)
    else:
        raise ValueError("no weights with these signs were found")
    for a in range(features):
        # A remaining wrong sign is within the tolerance.
        w[a] = w[a] / unit[a] if w[a] * signs[a] >= 0.0 else 0.0


@numba.njit(cache=True, nogil=True)
def _violations(system, right, signs, free, w, violations):  # type: ignore[no-untyped-def]
    """List the free weights with the wrong sign and the fixed ones whose gradient points away from zero."""
    largest = np.max(np.abs(w))
    count = 0
    for a in range(len(w)):
        if signs[a] == 0:
            continue
        if free[a]:
            violated = w[a] * signs[a] < -_SLACK * largest
        else:
            gradient, size = -right[a], abs(right[a])
            for b in range(len(w)):
                gradient += system[a, b] * w[b]
                size += abs(system[a, b] * w[b])
            violated = gradient * signs[a] < -_SLACK * size
        if violated:
            violations[count] = a
            count += 1
    return count


@numba.njit(cache=True, nogil=True)
def _solve_free(system, right, free, w):  # type: ignore[no-untyped-def]
    """Solve for the free weights, with the others at zero."""
    index = np.flatnonzero(free)
    part = np.empty((len(index), len(index)))
    some = np.empty(len(index))
    for i in range(len(index)):
        for j in range(len(index)):
            part[i, j] = system[index[i], index[j]]
        some[i] = right[index[i]]
    _solve_positive_definite(part, some)
    w[:] = 0.0
    for i in range(len(index)):
        w[index[i]] = some[i]


# --- additive statistics of pairwise least squares: a matrix, a vector and a count per query --------------------------


@dataclass(frozen=True, eq=False, repr=False)
class PairStatistics:
    """Statistics of one or many queries (or cells of queries), one per row.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [3.0], [0.0], [1.0]], y=[0, 1, 0, 1], qid=[7, 7, 8, 8])
    >>> each = PairStatistics.from_queries(queries)
    >>> each.gram.tolist(), each.moment.tolist(), each.pairs.tolist()
    ([[4.0], [1.0]], [[2.0], [1.0]], [1.0, 1.0])
    >>> both = each.sum()
    >>> both.solve(penalty=0.5)
    array([[0.5]])
    >>> (both - each[1]).moment.tolist()
    [[2.0]]
    """

    gram: NDArray[Any]
    """The upper triangle of each A, row by row. float32 per query, which halves memory traffic; float64 in sums; shape
    (n, D (D + 1).
    """
    moment: NDArray[Any]
    """Each b; shape (n, D)."""
    pairs: Float64
    """The number of pairs, or their total weight. A pair of rows with weights counts their product; shape (n,)."""

    def __post_init__(self) -> None:
        n, features = self.moment.shape
        if self.gram.shape != (n, packed_size(features)) or self.pairs.shape != (n,):
            raise DataError(
                f"statistics of {n} queries with {features} features need gram of shape "
                f"{(n, packed_size(features))} and {n} pair counts, got {self.gram.shape} and {self.pairs.shape}"
            )

    @classmethod
    def from_queries(cls, queries: QuerySet) -> PairStatistics:
        """Compute the statistics of each judged query."""
        n, features = len(queries), queries.n_features
        gram = np.empty((n, packed_size(features)), dtype=np.float32)
        moment = np.empty((n, features), dtype=np.float32)
        pairs = np.empty(n, dtype=np.float64)
        _accumulate(
            np.ascontiguousarray(queries.X),
            queries.grades,
            queries.row_weights.astype(np.float64),
            queries.offsets,
            gram,
            moment,
            pairs,
        )
        finite = np.isfinite(gram).all(axis=1)
        if not finite.all():
            query = queries.qid[np.argmin(finite)].item()
            raise DataError(f"features of query {query!r} are missing or too large to square: fill or scale them")
        return cls(gram, moment, pairs)

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def n_features(self) -> int:
        """The number D of features."""
        return int(self.moment.shape[1])

    def __getitem__(self, index: int | slice | NDArray[Any]) -> PairStatistics:
        if isinstance(index, int | np.integer):
            if not -len(self) <= index < len(self):
                raise IndexError(f"row {index} of {len(self)}")
            index = slice(int(index) % len(self), int(index) % len(self) + 1)
        return PairStatistics(self.gram[index], self.moment[index], self.pairs[index])

    def __add__(self, other: PairStatistics) -> PairStatistics:
        return self._combine(other, 1.0)

    def __sub__(self, other: PairStatistics) -> PairStatistics:
        return self._combine(other, -1.0)

    def _combine(self, other: PairStatistics, sign: float) -> PairStatistics:
        if other.moment.shape != self.moment.shape:
            raise DataError(f"statistics of shapes {self.moment.shape} and {other.moment.shape} do not add")
        return PairStatistics(
            self.gram.astype(np.float64) + sign * other.gram,
            self.moment.astype(np.float64) + sign * other.moment,
            self.pairs + sign * other.pairs,
        )

    @classmethod
    def concat(cls, parts: list[PairStatistics]) -> PairStatistics:
        """Concatenate the rows of several statistics."""
        return cls(
            np.concatenate([part.gram for part in parts]),
            np.concatenate([part.moment for part in parts]),
            np.concatenate([part.pairs for part in parts]),
        )

    def sum(self, index: ArrayLike | None = None, weights: ArrayLike | None = None) -> PairStatistics:
        """Return the sum over a set of rows, in float64.

        `index` has positions or a mask, `weights` a factor for each row summed.
        """
        rows = np.arange(len(self)) if index is None else self._rows(index)
        return self._sums(rows, np.array([0, len(rows)]), weights)

    def sums(self, index: NDArray[np.int64], starts: NDArray[np.int64], weights: ArrayLike | None = None) -> Self:
        """Return the sums over many sets of rows: set i is ``index[starts[i]:starts[i + 1]]``."""
        return self._sums(self._rows(index), starts, weights)

    def _sums(self, rows: NDArray[np.int64], starts: NDArray[np.int64], weights: ArrayLike | None) -> Self:
        factors = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
        if factors.shape != rows.shape:
            raise DataError(f"weights must be one per row summed ({len(rows)}), got shape {factors.shape}")
        n = len(starts) - 1
        gram, moment, pairs = np.zeros((n, self.gram.shape[1])), np.zeros((n, self.n_features)), np.zeros(n)
        _sum_sets(self.gram, self.moment, self.pairs, rows, starts, factors, gram, moment, pairs)
        return type(self)(gram, moment, pairs)

    def prefix_sums(self, index: ArrayLike, counts: ArrayLike, weights: ArrayLike | None = None) -> PairStatistics:
        """Return the sums over the first ``counts[i]`` rows of `index` for each i; counts must ascend."""
        rows = self._rows(index)
        ends = np.asarray(counts, dtype=np.int64)
        if not len(ends) or ends[0] < 1 or ends[-1] > len(rows) or np.any(np.diff(ends) < 0):
            raise DataError(f"counts must ascend from 1 to the {len(rows)} rows of the index, got {ends.tolist()}")
        factors = np.ones(len(rows)) if weights is None else np.asarray(weights, dtype=np.float64)
        gram = np.zeros((len(ends), self.gram.shape[1]))
        moment = np.zeros((len(ends), self.n_features))
        _prefix_sums(self.gram, rows, factors, ends, gram)
        _prefix_sums(self.moment, rows, factors, ends, moment)
        return PairStatistics(gram, moment, np.cumsum(self.pairs[rows] * factors)[ends - 1])

    def _rows(self, index: ArrayLike) -> NDArray[np.int64]:
        """Return validated positions: compiled code does not check bounds."""
        rows = np.asarray(index)
        if rows.dtype == np.bool_ and rows.shape == (len(self),):
            return np.flatnonzero(rows)
        if rows.ndim != 1 or (rows.size and not np.issubdtype(rows.dtype, np.integer)):
            raise DataError(
                f"index must be a list of whole numbers or a mask of {len(self)} rows, got {rows.dtype} {rows.shape}"
            )
        if rows.size and not 0 <= rows.min() <= rows.max() < len(self):
            raise DataError(f"index must lie between 0 and {len(self) - 1}, got {rows.min()} to {rows.max()}")
        return rows.astype(np.int64)

    def solve(self, penalty: float, prior: ArrayLike | None = None, signs: ArrayLike | None = None) -> Float64:
        """Return the RankRLS weights of each row: (A / P + λI)⁻¹ (b / P + λ w0), or the best with the given signs.

        The weights of a row without pairs are the prior, set to 0 if it violates a sign.

        Parameters
        ----------
        penalty
            λ.
        prior
            w0; zeros by default.
        signs
            For each feature 1 (weight must not be negative), -1 (must not be positive) or 0 (any, the default).

        Returns
        -------
        float64 array of shape (n, D)
        """
        strength, center = check_penalty(penalty), check_prior(prior, self.n_features)
        allowed = np.zeros(self.n_features, dtype=np.int8) if signs is None else np.asarray(signs, dtype=np.int8)
        if allowed.shape != (self.n_features,):
            raise DataError(f"signs must be one number per feature ({self.n_features}), got shape {allowed.shape}")
        weights = np.empty((len(self), self.n_features))
        try:
            solve_rows(self.gram, self.moment, self.pairs, strength, center, allowed, weights)
        except (np.linalg.LinAlgError, ValueError):
            raise DataError(
                "the statistics are not those of real pairs (the pair count or the Gram matrix is negative): check "
                "that every query subtracted was added before, and scale features with very large values"
            ) from None
        return weights

    def get_state(self) -> State:
        """Return the statistics as plain arrays."""
        return {"gram": self.gram, "moment": self.moment, "pairs": self.pairs}

    @classmethod
    def from_state(cls, state: State) -> PairStatistics:
        """Restore statistics from what `get_state` returned."""
        return cls(state["gram"], state["moment"], state["pairs"])

    def matrix(self, row: int = 0) -> Float64:
        """Return A of one row as a full symmetric matrix."""
        full = np.zeros((self.n_features, self.n_features))
        full[np.triu_indices(self.n_features)] = self.gram[row]
        return full + np.triu(full, 1).T

    def __repr__(self) -> str:
        return f"PairStatistics({len(self):,} rows, {self.n_features:,} features, {self.pairs.sum():,.0f} pairs)"


def packed_size(n_features: int) -> int:
    """Return the number of entries in the upper triangle of a Gram matrix."""
    return n_features * (n_features + 1) // 2


@numba.njit(cache=True, nogil=True)
def _accumulate(X, y, w, offsets, gram, moment, pairs):  # type: ignore[no-untyped-def]
    """Compute the statistics of every query.

    The pair graph connects all documents of different grades, so its Laplacian is diag(n - n_g) - 11' + Σ_g 1_g 1_g'.
    Centering rows on the query's mean leaves differences unchanged and removes the 11' term:
    A = Σ_i (n - n_g(i)) z_i z_i' + Σ_g s_g s_g', s_g being the sum of the rows of grade g. Both sums are outer
    products of rows, so they go into one table and one BLAS call. If rows have weights, a pair counts w_i w_j: all
    counts and sums over rows become weighted ones, and the first sum gets the factor w_i.
    """
    features = X.shape[1]
    longest = 0
    for q in range(len(offsets) - 1):
        longest = max(longest, offsets[q + 1] - offsets[q])
    table = np.empty((2 * longest, features))  # at most, every row has a different grade
    factors = np.empty(len(table))
    full = np.empty((features, features))
    center = np.empty(features)
    total = np.empty(features)
    for q in range(len(offsets) - 1):
        start, stop = offsets[q], offsets[q + 1]
        n = stop - start
        center[:] = 0.0
        total[:] = 0.0
        all_weight = 0.0
        for i in range(start, stop):
            all_weight += w[i]
            for a in range(features):
                center[a] += w[i] * X[i, a]
        if all_weight > 0.0:
            center /= all_weight
        by_grade = np.argsort(y[start:stop])
        count = 0.0
        below = 0.0
        used = 0
        first = 0
        while first < n:
            grade = y[start + by_grade[first]]
            last = first
            here = 0.0
            while last < n and y[start + by_grade[last]] == grade:
                here += w[start + by_grade[last]]
                last += 1
            if last - first == n:
                break
            above = all_weight - below - here
            same = used + last - first  # the row of s_g follows the rows of grade g
            table[same] = 0.0
            for position in range(first, last):
                i = start + by_grade[position]
                for a in range(features):
                    table[used, a] = X[i, a] - center[a]
                    table[same, a] += w[i] * table[used, a]
                factors[used] = w[i] * (below + above)
                used += 1
            factors[same] = 1.0
            used += 1
            net = below - above  # wins over lower grades minus losses to higher ones
            for a in range(features):
                total[a] += net * table[same, a]
            count += below * here
            below += here
            first = last
        np.dot(table[:used].T, table[:used] * factors[:used].reshape(-1, 1), full)
        k = 0
        for a in range(features):
            for b in range(a, features):
                gram[q, k] = full[a, b]
                k += 1
            moment[q, a] = total[a]
        pairs[q] = count


@numba.njit(cache=True, nogil=True)
def _sum_rows(table, rows, factors, total):  # type: ignore[no-untyped-def]
    """Add factors[r] · table[rows[r]] to total, four rows at a time to read and write total less often."""
    fours = len(rows) // 4 * 4
    for r in range(0, fours, 4):
        r0, r1, r2, r3 = table[rows[r]], table[rows[r + 1]], table[rows[r + 2]], table[rows[r + 3]]
        f0, f1, f2, f3 = factors[r], factors[r + 1], factors[r + 2], factors[r + 3]
        for a in range(len(total)):
            total[a] += (f0 * r0[a] + f1 * r1[a]) + (f2 * r2[a] + f3 * r3[a])
    for r in range(fours, len(rows)):
        row = table[rows[r]]
        factor = factors[r]
        for a in range(len(total)):
            total[a] += factor * row[a]


@numba.njit(cache=True, nogil=True)
def _prefix_sums(table, rows, factors, ends, sums):  # type: ignore[no-untyped-def]
    """Sum the first ends[i] rows for each i, starting from the previous sum."""
    done = 0
    for i in range(len(ends)):
        if i > 0:
            sums[i] = sums[i - 1]
        _sum_rows(table, rows[done : ends[i]], factors[done : ends[i]], sums[i])
        done = ends[i]


@numba.njit(cache=True, nogil=True)
def _sum_sets(gram, moment, pairs, index, starts, factors, gram_sums, moment_sums, pair_sums):  # type: ignore[no-untyped-def]
    """Sum the rows of all three arrays over each set."""
    for s in range(len(starts) - 1):
        rows, weights = index[starts[s] : starts[s + 1]], factors[starts[s] : starts[s + 1]]
        _sum_rows(gram, rows, weights, gram_sums[s])
        _sum_rows(moment, rows, weights, moment_sums[s])
        for r in range(len(rows)):
            pair_sums[s] += weights[r] * pairs[rows[r]]
