"""Two-level k-means: assigning a point costs the square root of the number of cells.

Flat k-means with C cells costs n C d operations per iteration and C d per assigned point. With a first level of about
√C groups, each split into its share of the cells, both fall by a factor of √C: 65,536 cells are fitted in minutes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, Self

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from kinrank.arrays import Float32, Float64, Int64
from kinrank.errors import DataError, ParameterError
from kinrank.kin.indexes.base import as_points

_ITERATIONS = 25  # of k-means: cells need to be reproducible, not optimal
_FLAT = 64  # up to this many cells, one level is enough
_POINTS_PER_GROUP = 256  # sample size of the first level

MapFunction = Callable[[Callable[[Any], Any], list[Any]], Iterator[Any]]


class CellTree:
    """Partition of points into groups, each split into cells, by k-means.

    Parameters
    ----------
    n_cells
        Number of cells; fewer if there are fewer distinct points.
    seed
        Random seed of the initial centers.

    Attributes
    ----------
    groups_ : float32 array of shape (groups, dim)
        The centers of the first level.
    starts_ : int64 array of shape (groups + 1,)
        Group i is split into cells ``starts_[i]:starts_[i + 1]``.
    centers_ : float32 array of shape (cells, dim)
        The centers of the cells.

    Examples
    --------
    >>> tree = CellTree(2).fit([[0.0], [1.0], [9.0], [10.0]])
    >>> sorted(tree.centers_.ravel().tolist())
    [0.5, 9.5]
    >>> cells, distances = tree.assign([[0.2], [20.0]])
    >>> tree.centers_[cells].ravel().tolist(), distances.round(2).tolist()
    ([0.5, 9.5], [0.3, 10.5])
    """

    def __init__(self, n_cells: int, *, seed: int = 0) -> None:
        self.n_cells = n_cells
        self.seed = seed

    def fit(self, points: ArrayLike, run: MapFunction = map) -> Self:
        """Fit the cells; the same points in the same order give identical cells.

        `run` is like `map`; it is called to split the groups, which can be done in parallel.
        """
        if self.n_cells < 1:
            raise ParameterError(f"n_cells must be at least 1, got {self.n_cells}")
        array = as_points(points)
        wanted = min(self.n_cells, len(array))
        n_groups = 1 if wanted <= _FLAT else round(wanted**0.5)
        step = max(1, len(array) // (_POINTS_PER_GROUP * n_groups))
        self.groups_ = self._centers((np.ascontiguousarray(array[::step]), n_groups))
        members = _assign_flat(array, self.groups_)
        shares = _shares(np.bincount(members, minlength=len(self.groups_)), wanted).tolist()
        parts = list(run(self._centers, [(array[members == group], count) for group, count in enumerate(shares)]))
        self.starts_: Int64 = np.append(0, np.cumsum([len(part) for part in parts]))
        self.centers_: Float32 = np.concatenate(parts)
        return self

    def _centers(self, piece: tuple[Float32, int]) -> Float32:
        """Return at most `count` centers of some points, each with at least one point."""
        points, count = piece
        if count >= len(points):
            return np.unique(points, axis=0)
        # With several threads, k-means sums in an order that varies between runs.
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct points than cells
            k_means = KMeans(count, n_init=1, max_iter=_ITERATIONS, random_state=self.seed).fit(points)
        centers: Float32 = np.ascontiguousarray(k_means.cluster_centers_, dtype=np.float32)
        return centers[np.unique(_assign_flat(points, centers))]

    def assign(self, points: ArrayLike) -> tuple[Int64, Float64]:
        """Return the cell of each point and the distance to its center.

        The cell is the nearest one of the nearest group, and does not depend on the other points in the call.
        """
        array = as_points(points)
        if array.shape[1] != self.centers_.shape[1]:
            raise DataError(f"the cells have {self.centers_.shape[1]} dimensions, got points of {array.shape[1]}")
        cells, squares = np.empty(len(array), dtype=np.int64), np.empty(len(array))
        _assign(array, self.groups_, self.starts_, self.centers_, cells, squares)
        return cells, np.sqrt(squares)

    def __len__(self) -> int:
        return len(self.centers_)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return the cells as plain arrays."""
        return {"groups": self.groups_, "starts": self.starts_, "centers": self.centers_}

    @classmethod
    def from_state(cls, state: dict[str, NDArray[Any]]) -> Self:
        """Restore cells from what `get_state` returned."""
        tree = cls(len(state["centers"]))
        tree.groups_, tree.starts_, tree.centers_ = state["groups"], state["starts"], state["centers"]
        return tree


def _shares(sizes: Int64, total: int) -> Int64:
    """Distribute `total` cells over groups in proportion to their sizes, at least one each."""
    exact = sizes * (total / sizes.sum())
    shares: Int64 = np.maximum(1, np.floor(exact)).astype(np.int64)
    most_lacking = np.argsort(shares - exact, kind="stable")
    shares[most_lacking[: max(0, total - int(shares.sum()))]] += 1
    return shares


def _assign_flat(points: Float32, centers: Float32) -> Int64:
    cells, squares = np.empty(len(points), dtype=np.int64), np.empty(len(points))
    _assign(points, centers[:1], np.array([0, len(centers)]), centers, cells, squares)
    return cells


@numba.njit(cache=True, nogil=True)
def _assign(points, groups, starts, centers, cells, squares):  # type: ignore[no-untyped-def]
    """Assign points one by one, so that ties do not depend on the batch."""
    for p in range(len(points)):
        group, _ = _nearest(points[p], groups, 0, len(groups))
        cells[p], squares[p] = _nearest(points[p], centers, starts[group], starts[group + 1])


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _nearest(point, centers, first, last):  # type: ignore[no-untyped-def]
    """Return the nearest of some centers, the first one if tied, and its squared distance."""
    best, least = first, np.inf
    for c in range(first, last):
        total = 0.0
        for j in range(len(point)):
            gap = np.float64(point[j]) - np.float64(centers[c, j])
            total += gap * gap
        if total < least:
            best, least = c, total
    return best, least
