"""Finding the judged queries most like the one at hand: one contract, several indexes."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.errors import ParameterError
from kinrank.neighbors.base import NeighborIndex
from kinrank.neighbors.weights import neighbor_weights
from kinrank.registry import Registry

__all__ = ["INDEXES", "NeighborIndex", "choose_index", "make_index", "neighbor_weights", "restore_index"]

INDEXES = Registry(
    "index",
    {
        "exact": "kinrank.neighbors.exact:ExactIndex",
        "kdtree": "kinrank.neighbors.kdtree:KDTreeIndex",
        "faiss-flat": "kinrank.neighbors.faiss_indexes:FaissFlatIndex",
        "faiss-ivf": "kinrank.neighbors.faiss_indexes:FaissIVFIndex",
        "faiss-hnsw": "kinrank.neighbors.faiss_indexes:FaissHNSWIndex",
    },
)

# Numbers (points times dimensions) that one scan may read: a few milliseconds of one thread.
_SCAN_LIMIT = 10_000_000


def choose_index(n_points: int, dim: int) -> str:
    """The name of the index to use at this size.

    The scan, while it reads no more than ten million numbers (``n_points * dim``): it is exact, needs no building,
    and takes a fraction of a millisecond for 10,000 points in 46 dimensions. Beyond that FAISS's IVF, where FAISS is
    installed: at 100,000 points it takes 0.4 of the scan's time for 98 in 100 neighbors, and is built in a second
    where HNSW takes 16. IVF is thus faster before the limit; we keep exact answers as long as they cost a few
    milliseconds. ``python -m benchmarks index_choice`` measures all of them.

    Examples
    --------
    >>> choose_index(10_000, 46)
    'exact'
    """
    if n_points * dim > _SCAN_LIMIT and find_spec("faiss") is not None:
        return "faiss-ivf"
    return "exact"


def make_index(index: str | NeighborIndex, n_points: int, dim: int) -> NeighborIndex:
    """An index that is ready to fit: ``"auto"``, a registered name, or a copy of an index with its settings.

    Examples
    --------
    >>> make_index("auto", 10_000, 46)
    ExactIndex()
    """
    if isinstance(index, NeighborIndex):
        copied: NeighborIndex = clone(index)
        return copied
    if not isinstance(index, str):
        raise ParameterError(f"index must be 'auto', a name or a NeighborIndex, got {type(index).__name__}")
    made: NeighborIndex = INDEXES.make(choose_index(n_points, dim) if index == "auto" else index)
    return made


def restore_index(index: str | NeighborIndex, state: dict[str, NDArray[Any]]) -> NeighborIndex:
    """The index whose `get_state` gave the state, as `make_index` made it.

    What ``"auto"`` chose is seen in the state and not chosen again: a model answers as before where FAISS was installed
    since, or where points that were added crossed the limit. Where FAISS is gone, the scan serves in its place.

    Examples
    --------
    >>> state = make_index("auto", 2, 1).fit([[0.0], [1.0]]).get_state()
    >>> restore_index("auto", state).query([[0.8]], k=1)[1].tolist()
    [[1]]
    """
    if index == "auto":
        index = "faiss-ivf" if "faiss" in state and find_spec("faiss") is not None else "exact"
    return make_index(index, *state["points"].shape).set_state(state)
