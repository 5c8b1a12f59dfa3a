"""Finding a query that is in two blocks, without keeping all ids in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.data.blocks import Blocks
from kinrank.data.marks import Marks, text_marks
from kinrank.errors import DataError

_PASSES = 16  # each looks at a sixteenth of all marks: 50 MB for 10^8 queries


def marks_of(qid: NDArray[Any]) -> Marks:
    """64 bits for each id: whole numbers as they are, anything else by its hash.

    Examples
    --------
    >>> marks_of(np.array([3, 4])).tolist()
    [3, 4]
    """
    if qid.dtype.kind in "iu":
        return qid.astype(np.int64).view(np.uint64)
    return text_marks(qid)


def refuse_repeated(blocks: Blocks, marks: Callable[[int], Marks]) -> None:
    """Raise where a query is in more than one place.

    Parameters
    ----------
    blocks
        The data, looked at again only where two marks are equal.
    marks
        The sorted marks of a block.
    """
    bounds = np.arange(1, _PASSES, dtype=np.uint64) << np.uint64(60)
    for some in range(_PASSES):
        parts = [np.split(each, np.searchsorted(each, bounds))[some] for each in map(marks, range(len(blocks)))]
        together = np.concatenate(parts)
        owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        order = np.argsort(together, kind="stable")
        again = np.flatnonzero(together[order][1:] == together[order][:-1])
        for place in again:
            _compare(blocks, together[order[place]], owner[order[place : place + 2]].tolist())


def _compare(blocks: Blocks, mark: np.uint64, places: Sequence[int]) -> None:
    """Two ids of one mark: an error if they are one id, as whole numbers are; text may share a mark by chance."""
    first, second = (
        [query for part in blocks.read(block) for query in part.qid[marks_of(part.qid) == mark].tolist()]
        for block in places
    )
    shared = (
        set(first) & set(second) if places[0] != places[1] else {query for query in first if first.count(query) > 1}
    )
    if shared:
        raise DataError(
            f"query {shared.pop()!r} is in two places, {blocks.name(places[0])} and {blocks.name(places[1])}: the rows "
            "of a query must lie together; sort the data by query"
        )
