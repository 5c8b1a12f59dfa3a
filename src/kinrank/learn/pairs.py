"""Pairwise hinge losses without materialized pairs: loss, gradient and Hessian products over ragged groups.

Rows of a query are sorted by grade, best first, so the documents that row i should beat are the rows from
``lower[i]`` to the end of its query. The loops over them are branch-free and contiguous. A query's rows stay in the
first-level cache from scores to gradient, so each function reads the features once.

Both hinges are one family. With violation t = 1 - (s_i - s_j), m = min(max(t, 0), μ) and scale c, the loss is
c m (2t - m): quadratic up to μ, linear beyond. μ = ∞, c = 1 is the squared hinge; μ → 0, c = 1/(2μ) the plain one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64
from kinrank.data.grouping import offsets_of
from kinrank.data.queryset import QuerySet

_FAST = {"reassoc", "contract", "nsz", "arcp"}  # sums may be reordered; NaN and infinity keep their meaning


@dataclass(frozen=True, eq=False)
class JudgedPairs:
    """Judged queries, sorted for the loops over pairs."""

    X: NDArray[np.float32]
    """Rows sorted by grade within each query, best first."""
    offsets: NDArray[np.int64]
    """Query i owns rows ``offsets[i]:offsets[i + 1]``."""
    lower: NDArray[np.int64]
    """For each row, the first row of its query with a lower grade, or the end of the query if there is none."""
    pairs: Float64
    """Number of pairs of each query, or their total weight."""
    weight: Float32
    """The weight of each row. A pair counts the product of the weights of its rows."""

    @classmethod
    def from_queries(cls, queries: QuerySet) -> JudgedPairs:
        """Sort the rows of each query by grade."""
        grades = queries.grades
        order = np.lexsort((-grades, queries.query_of_row))
        weight = queries.row_weights[order]
        lower, pairs = _lower_rows(grades[order], weight, queries.offsets)
        return cls(np.ascontiguousarray(queries.X[order]), queries.offsets, lower, pairs, weight)

    @classmethod
    def concat(cls, parts: Sequence[JudgedPairs]) -> JudgedPairs:
        """Concatenate the queries of several parts."""
        starts = np.cumsum([0, *(len(part.X) for part in parts)])
        return cls(
            np.concatenate([part.X for part in parts]),
            offsets_of(np.concatenate([np.diff(part.offsets) for part in parts])),
            np.concatenate([part.lower + start for part, start in zip(parts, starts[:-1], strict=True)]),
            np.concatenate([part.pairs for part in parts]),
            np.concatenate([part.weight for part in parts]),
        )

    def take(self, queries: NDArray[np.int64]) -> JudgedPairs:
        """Return a subset of the queries."""
        sizes = np.diff(self.offsets)[queries]
        offsets = offsets_of(sizes)
        shift = np.repeat(offsets[:-1] - self.offsets[queries], sizes)
        rows = np.arange(offsets[-1]) - shift
        return JudgedPairs(self.X[rows], offsets, self.lower[rows] + shift, self.pairs[queries], self.weight[rows])


@dataclass(frozen=True)
class Hinge:
    """A hinge loss: quadratic up to `width`, linear beyond, times `scale`."""

    width: float
    scale: float


SQUARED = Hinge(width=np.inf, scale=1.0)


def smoothed_hinge(width: float) -> Hinge:
    """Return the plain hinge with a smoothed corner, within width / 2 of it everywhere."""
    return Hinge(width=width, scale=0.5 / width)


@dataclass(frozen=True, eq=False)
class PairObjective:
    """The objective λ/2 |w - w0|² + Σ_q ω_q Σ_pairs loss, for a subset of the queries of a `JudgedPairs`."""

    pairs: JudgedPairs
    """The judged queries."""
    queries: NDArray[np.int64]
    """Positions of the queries used."""
    weights: Float64
    """ω_q, the weight of one pair of each query; they sum to one over all pairs."""
    penalty: float
    prior: Float64
    """λ and w0."""
    hinge: Hinge
    """The loss."""

    def empty_scores(self) -> Float64:
        """Return an uninitialized array with one entry per row of the chosen queries."""
        return np.empty(int((self.pairs.offsets[self.queries + 1] - self.pairs.offsets[self.queries]).sum()))

    def value_and_gradient(self, w: Float64, scores: Float64) -> tuple[float, Float64]:
        """Return both at w; fill `scores` (from `empty_scores`), which `hessian_product` needs."""
        difference = w - self.prior
        gradient = self.penalty * difference
        loss = _loss_gradient(*self._data(), w, self.hinge.width, self.hinge.scale, scores, gradient)
        return loss + 0.5 * self.penalty * float(difference @ difference), gradient

    def hessian_product(self, scores: Float64, direction: Float64) -> Float64:
        """Return the (generalized) Hessian at the point of `scores`, times a direction."""
        product = self.penalty * direction
        _hessian_product(*self._data(), scores, direction, self.hinge.width, self.hinge.scale, product)
        return product

    def _data(self) -> tuple[NDArray[Any], ...]:
        return self.pairs.X, self.pairs.offsets, self.pairs.lower, self.pairs.weight, self.queries, self.weights


@numba.njit(cache=True, nogil=True)
def _lower_rows(y, weight, offsets):  # type: ignore[no-untyped-def]
    """Return where the lower grades start for each row, and the total weight of the pairs of each query."""
    lower = np.empty(len(y), dtype=np.int64)
    pairs = np.zeros(len(offsets) - 1, dtype=np.float64)
    for q in range(len(offsets) - 1):
        end = offsets[q + 1]
        same, below = 0.0, 0.0
        for i in range(offsets[q + 1] - 1, offsets[q] - 1, -1):
            if i + 1 < offsets[q + 1] and y[i] != y[i + 1]:
                end = i + 1
                below += same
                same = 0.0
            same += weight[i]
            lower[i] = end
            pairs[q] += weight[i] * below
    return lower, pairs


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _products(X, start, stop, w, products):  # type: ignore[no-untyped-def]
    """Compute X[start:stop] @ w."""
    for i in range(start, stop):
        product = 0.0
        for a in range(len(w)):
            product += X[i, a] * w[a]
        products[i - start] = product


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _add_rows(X, start, stop, factors, total):  # type: ignore[no-untyped-def]
    """Add X[start:stop].T @ factors to total."""
    for i in range(start, stop):
        factor = factors[i - start]
        if factor != 0.0:
            for a in range(len(total)):
                total[a] += factor * X[i, a]


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _loss_gradient(X, offsets, lower, weight, queries, weights, w, width, scale, scores, gradient):  # type: ignore[no-untyped-def]
    """Add the gradient of the pair loss to `gradient`, fill `scores`, return the loss."""
    total = 0.0
    done = 0
    for k in range(len(queries)):
        start, stop = offsets[queries[k]], offsets[queries[k] + 1]
        n = stop - start
        own = scores[done : done + n]
        done += n
        _products(X, start, stop, w, own)
        if weights[k] == 0.0 or lower[start] == stop:
            continue
        slope = np.zeros(n)
        loss = 0.0
        for i in range(n):
            base = 1.0 - own[i]
            own_slope = 0.0
            own_loss = 0.0
            own_weight = weight[start + i]
            for j in range(lower[start + i] - start, n):
                violation = base + own[j]
                m = min(max(violation, 0.0), width)
                weighted = weight[start + j] * m
                own_loss += weighted * (2.0 * violation - m)
                own_slope += weighted
                slope[j] += own_weight * weighted
            slope[i] -= own_weight * own_slope
            loss += own_weight * own_loss
        slope *= 2.0 * scale * weights[k]
        _add_rows(X, start, stop, slope, gradient)
        total += scale * weights[k] * loss
    return total


@numba.njit(cache=True, nogil=True, fastmath=_FAST)
def _hessian_product(X, offsets, lower, weight, queries, weights, scores, direction, width, scale, product):  # type: ignore[no-untyped-def]
    """Add the Hessian of the pair loss times `direction`: the Laplacian of the pairs in the quadratic part."""
    done = 0
    for k in range(len(queries)):
        start, stop = offsets[queries[k]], offsets[queries[k] + 1]
        n = stop - start
        own = scores[done : done + n]
        done += n
        if weights[k] == 0.0 or lower[start] == stop:
            continue
        along = np.empty(n)
        _products(X, start, stop, direction, along)
        curvature = np.zeros(n)
        for i in range(n):
            base = 1.0 - own[i]
            along_i = along[i]
            own_curvature = 0.0
            own_weight = weight[start + i]
            for j in range(lower[start + i] - start, n):
                violation = base + own[j]
                active = 1.0 if 0.0 < violation < width else 0.0
                change = weight[start + j] * active * (along_i - along[j])
                own_curvature += change
                curvature[j] -= own_weight * change
            curvature[i] += own_weight * own_curvature
        curvature *= 2.0 * scale * weights[k]
        _add_rows(X, start, stop, curvature, product)
