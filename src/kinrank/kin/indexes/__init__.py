"""Nearest-neighbor indexes over judged queries."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.errors import ParameterError
from kinrank.kin.indexes.base import NeighborIndex, neighbor_weights
from kinrank.registry import Registry

__all__ = ["INDEXES", "NeighborIndex", "choose_index", "make_index", "neighbor_weights", "restore_index"]

INDEXES = Registry(
    "index",
    {
        "exact": "kinrank.kin.indexes.base:ExactIndex",
        "faiss-ivf": "kinrank.kin.indexes._faiss:FaissIVFIndex",
        "faiss-hnsw": "kinrank.kin.indexes._faiss:FaissHNSWIndex",
    },
)

# Values (points times dimensions) that one scan may read: a few milliseconds on one thread.
_SCAN_LIMIT = 10_000_000


def choose_index(n_points: int, dim: int) -> str:
    """Return the name of the index to use at this size.

    The exact scan is used up to ten million values (``n_points * dim``): it needs no building and takes a fraction of
    a millisecond for 10,000 points in 46 dimensions. Beyond that, FAISS's IVF is used if FAISS is installed: at
    100,000 points it takes 0.4 of the scan's time, finds 98% of the neighbors, and is built in a second, compared with
    16 for HNSW. IVF is faster well below the limit, but exact neighbors are preferred while they cost a few
    milliseconds. ``python -m benchmarks index_choice`` measures all indexes.
    """
    if n_points * dim > _SCAN_LIMIT and find_spec("faiss") is not None:
        return "faiss-ivf"
    return "exact"


def make_index(index: str | NeighborIndex, n_points: int, dim: int) -> NeighborIndex:
    """Return a new unfitted index: ``"auto"``, a registered name, or a clone of the index given."""
    if isinstance(index, NeighborIndex):
        unfitted: NeighborIndex = clone(index)
        return unfitted
    if not isinstance(index, str):
        raise ParameterError(f"index must be 'auto', a name or a NeighborIndex, got {type(index).__name__}")
    made: NeighborIndex = INDEXES.make(choose_index(n_points, dim) if index == "auto" else index)
    return made


def restore_index(index: str | NeighborIndex, state: dict[str, NDArray[Any]]) -> NeighborIndex:
    """Restore an index made by `make_index` from its state.

    With ``"auto"`` the type of index is read from the state, not chosen again, so that a model returns the same
    neighbors even if FAISS was installed later or added points crossed the limit. If FAISS is no longer installed,
    the exact scan replaces it.

    Examples
    --------
    >>> state = make_index("auto", 2, 1).fit([[0.0], [1.0]]).get_state()
    >>> restore_index("auto", state).query([[0.8]], k=1)[1].tolist()
    [[1]]
    """
    if index == "auto":
        index = "faiss-ivf" if "faiss" in state and find_spec("faiss") is not None else "exact"
    return make_index(index, *state["points"].shape).set_state(state)
