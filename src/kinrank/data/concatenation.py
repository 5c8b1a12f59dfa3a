"""Concatenate the arrays of several sets of queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import State
from kinrank.data.grouping import offsets_of
from kinrank.data.query_rows import COLUMN
from kinrank.errors import DataError

_FILL = {"y": np.nan, "sample_weight": 1.0}  # not judged, and of the usual weight


def concat_states(states: Sequence[State]) -> State:
    """Concatenate the arrays of `QuerySet.get_state`; see `QuerySet.concat`.

    Examples
    --------
    >>> one = {"X": np.zeros((1, 1)), "offsets": np.array([0, 1]), "qid": np.array(["a"]), "y": np.ones(1, np.float32)}
    >>> other = {"X": np.zeros((2, 1)), "offsets": np.array([0, 2]), "qid": np.array(["b"])}
    >>> both = concat_states([one, other])
    >>> both["offsets"].tolist(), both["y"].tolist()
    ([0, 1, 3], [1.0, nan, nan])
    """
    names = dict.fromkeys(name for state in states for name in state)
    joined = {name: np.concatenate([_array(name, states, i) for i in range(len(states))]) for name in names}
    joined["offsets"] = offsets_of(np.concatenate([np.diff(state["offsets"]) for state in states]))
    _check_ids([state["qid"] for state in states], joined["qid"])
    return joined


def _array(name: str, states: Sequence[State], number: int) -> NDArray[Any]:
    """Return an array of one of the sets, filled if it has none."""
    state = states[number]
    if name in state:
        return state[name]
    if name in _FILL:
        return np.full(len(state["X"]), _FILL[name], dtype=np.float32)
    column = name.removeprefix(COLUMN)
    what, change = (f"query column {column!r} is", "query_columns=, without it")
    if name == "doc_id":
        what, change = "document ids are", "doc_id=None"
    raise DataError(
        f"{what} missing in set {number + 1} of {len(states)}: add what is missing, or drop it from the others with "
        f"queries.replace({change})"
    )


def _check_ids(parts: Sequence[NDArray[Any]], qid: NDArray[Any]) -> None:
    if len({part.dtype.kind == "U" for part in parts}) > 1:
        raise DataError("query ids are text in one set and numbers in another: convert one of them")
    ids, counts = np.unique(qid, return_counts=True)
    if len(ids) != len(qid):
        raise DataError(f"query {ids[counts > 1][0].item()!r} is in more than one set: rename it or drop one")
