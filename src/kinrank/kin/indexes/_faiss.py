"""FAISS indexes: IVF and HNSW, both approximate. Needs ``pip install '.[faiss]'``."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Int64
from kinrank.kin.indexes.base import NeighborIndex
from kinrank.registry import import_extra

_EXTRA = 16  # additional points requested, so that float64 decides the order around the k-th


class _FaissIndex(NeighborIndex):
    """Base class of the FAISS indexes.

    Parameters
    ----------
    n_threads
        Threads for building and for batches. A single point is always searched with one thread: waking others
        costs more than they save.
    """

    def __init__(self, *, n_threads: int = 1) -> None:
        self.n_threads = n_threads

    skips_excluded: ClassVar[bool] = True

    @abstractmethod
    def _make(self, faiss: Any, dim: int) -> Any:
        """Return an empty FAISS index."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        return super().get_state() | {"faiss": import_extra("faiss", "faiss").serialize_index(self._faiss)}

    def set_state(self, state: dict[str, NDArray[Any]]) -> Self:
        self._set_points(state["points"])
        self._faiss = import_extra("faiss", "faiss").deserialize_index(np.array(state["faiss"]))
        return self

    @abstractmethod
    def _search(self, queries: Float32, k: int) -> Int64:
        """Return the positions of about the nearest `k` points of each query; -1 for points that were not found."""

    def _selection(self) -> dict[str, Any]:
        """Return the parameter that leaves out excluded points, if there are any."""
        if self._excluded is None:
            return {}
        kept = np.packbits(~self._excluded, bitorder="little")
        return {"sel": import_extra("faiss", "faiss").IDSelectorBitmap(kept)}

    def _build(self) -> None:
        faiss = import_extra("faiss", "faiss")
        with _threads(faiss, self.n_threads):
            self._faiss = self._make(faiss, self.points_.shape[1])
            if not self._faiss.is_trained:
                self._faiss.train(self.points_)
            self._faiss.add(self.points_)

    def _propose(self, queries: Float32, k: int) -> Iterable[Int64 | None]:
        wanted = min(k + _EXTRA, len(self.points_))
        with _threads(import_extra("faiss", "faiss"), 1 if len(queries) == 1 else self.n_threads):
            found = self._search(queries, wanted)
        for positions in found:
            # FAISS pads with -1 if it found too few.
            yield positions[positions >= 0] if positions[k - 1] >= 0 else None


class FaissIVFIndex(_FaissIndex):
    """Approximate index: scan the k-means cells nearest to the query.

    Parameters
    ----------
    n_cells
        Number of cells; defaults to the square root of the number of points.
    n_probe
        Cells scanned per query; defaults to a sixteenth of them, or more if those would hold fewer than 64 points
        per requested neighbor.
    n_threads
        Threads for building and for batches.

    Examples
    --------
    >>> FaissIVFIndex(n_cells=1).fit([[0.0], [1.0], [5.0]]).query([[2.0]], k=1)[1].tolist()
    [[1]]
    """

    recall: ClassVar[float] = 0.9

    def __init__(self, *, n_cells: int | None = None, n_probe: int | None = None, n_threads: int = 1) -> None:
        super().__init__(n_threads=n_threads)
        self.n_cells = n_cells
        self.n_probe = n_probe

    def _make(self, faiss: Any, dim: int) -> Any:
        cells = min(self.n_cells or round(len(self.points_) ** 0.5), len(self.points_))
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(dim), dim, cells)
        # Cells need not be optimal: ten iterations on a sample index a million points in ten seconds.
        index.cp.niter = 10
        index.cp.max_points_per_centroid = 64
        index.cp.min_points_per_centroid = 1  # fewer make coarse cells, not wrong ones: suppress the warning
        return index

    def _search(self, queries: Float32, k: int) -> Int64:
        faiss = import_extra("faiss", "faiss")
        cells = self._faiss.nlist
        enough = max(-(-cells // 16), -(-64 * k * cells // len(self.points_)))
        probed = faiss.SearchParametersIVF(nprobe=min(self.n_probe or enough, cells), **self._selection())
        found: Int64 = self._faiss.search(queries, k, params=probed)[1]
        return found


class FaissHNSWIndex(_FaissIndex):
    """Approximate index on a navigable small-world graph: fast to search, slow to build.

    Parameters
    ----------
    n_links
        Number of links per point.
    ef_construction, ef_search
        Search width when building and when searching. `ef_search` is at least the number of neighbors requested
        and defaults to 1.25 times that.
    n_threads
        Threads for building and for batches.

    Examples
    --------
    >>> FaissHNSWIndex().fit([[0.0], [1.0], [5.0]]).query([[2.0]], k=1)[1].tolist()
    [[1]]
    """

    recall: ClassVar[float] = 0.9

    def __init__(
        self, *, n_links: int = 32, ef_construction: int = 80, ef_search: int | None = None, n_threads: int = 1
    ) -> None:
        super().__init__(n_threads=n_threads)
        self.n_links = n_links
        self.ef_construction = ef_construction
        self.ef_search = ef_search

    def _make(self, faiss: Any, dim: int) -> Any:
        index = faiss.IndexHNSWFlat(dim, self.n_links)
        index.hnsw.efConstruction = self.ef_construction
        return index

    def _search(self, queries: Float32, k: int) -> Int64:
        faiss = import_extra("faiss", "faiss")
        width = faiss.SearchParametersHNSW(efSearch=max(self.ef_search or k * 5 // 4, k), **self._selection())
        found: Int64 = self._faiss.search(queries, k, params=width)[1]
        return found


@contextmanager
def _threads(faiss: Any, count: int) -> Iterator[None]:
    """Set the number of FAISS threads within the block."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(count)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
