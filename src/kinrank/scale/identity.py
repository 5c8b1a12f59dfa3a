"""Finding a query that is in two blocks, without keeping all ids in memory at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.data.blocks import Blocks
from kinrank.data.id_hashes import IdHashes, hash_ids
from kinrank.errors import DataError

_BITS = 4  # each of the sixteen passes looks at the hashes that begin alike: 0.3 GB for 10^8 queries
# 2^64 by the golden ratio: numbers in a row begin differently. It is odd, so no two have the same product.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def hashes_of(qid: NDArray[Any]) -> IdHashes:
    """64 bits for each id, spread evenly: of whole numbers no two alike, anything else by its hash.

    Examples
    --------
    >>> hashes_of(np.array([0, 1])).tolist()
    [0, 11400714819323198485]
    """
    if qid.dtype.kind in "iu":
        return qid.astype(np.int64).view(np.uint64) * _FACTOR
    return hash_ids(qid)


def refuse_repeated(blocks: Blocks, hashes: Callable[[int], IdHashes]) -> None:
    """Raise where a query is in more than one place.

    Parameters
    ----------
    blocks
        The data, looked at again only where two hashes are equal.
    hashes
        The hashes of a block.
    """
    for beginning in range(1 << _BITS):
        parts = [each[each >> np.uint64(64 - _BITS) == beginning] for each in map(hashes, range(len(blocks)))]
        ends = np.cumsum([len(part) for part in parts])
        together = np.concatenate(parts)
        order = np.argsort(together, kind="stable")
        ranked = together[order]
        for place in np.flatnonzero(ranked[1:] == ranked[:-1]):
            owners = np.searchsorted(ends, order[place : place + 2], side="right")
            _compare(blocks, ranked[place], owners.tolist())


def _compare(blocks: Blocks, hashed: np.uint64, places: Sequence[int]) -> None:
    """Two ids of one hash: an error if they are one id, as whole numbers are; text may share a hash by chance."""
    first, second = (
        [query for part in blocks.read(block) for query in part.qid[hashes_of(part.qid) == hashed].tolist()]
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
