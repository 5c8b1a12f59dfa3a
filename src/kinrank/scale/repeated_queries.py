"""Detect queries that occur in two blocks, without holding all ids in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.data.blocks import Blocks
from kinrank.data.hashes import IdHashes, hash_ids
from kinrank.errors import DataError

_BITS = 4  # one of 16 passes for each value of the leading bits: 0.3 GB for 10^8 queries
# 2^64 / golden ratio spreads consecutive numbers evenly. It is odd, so products of different numbers differ.
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


def query_hashes(qid: NDArray[Any]) -> IdHashes:
    """Return a 64-bit hash of each id, evenly distributed; hashes of different whole numbers always differ.

    Examples
    --------
    >>> query_hashes(np.array([0, 1])).tolist()
    [0, 11400714819323198485]
    """
    if qid.dtype.kind in "iu":
        return qid.astype(np.int64).view(np.uint64) * _FACTOR
    return hash_ids(qid)


def check_no_repeated_queries(blocks: Blocks, hashes: Callable[[int], IdHashes]) -> None:
    """Raise if a query occurs in more than one place.

    Parameters
    ----------
    blocks
        The data; read again only if two hashes are equal.
    hashes
        Function that returns the hashes of a block.
    """
    for leading in range(1 << _BITS):
        parts = [each[each >> np.uint64(64 - _BITS) == leading] for each in map(hashes, range(len(blocks)))]
        ends = np.cumsum([len(part) for part in parts])
        together = np.concatenate(parts)
        order = np.argsort(together, kind="stable")
        ranked = together[order]
        for place in np.flatnonzero(ranked[1:] == ranked[:-1]):
            owners = np.searchsorted(ends, order[place : place + 2], side="right")
            _compare(blocks, ranked[place], owners.tolist())


def _compare(blocks: Blocks, hashed: np.uint64, places: Sequence[int]) -> None:
    """Raise if two ids with the same hash are equal; different texts can share a hash by chance."""
    first, second = (
        [query for part in blocks.read(block) for query in part.qid[query_hashes(part.qid) == hashed].tolist()]
        for block in places
    )
    shared = (
        set(first) & set(second) if places[0] != places[1] else {query for query in first if first.count(query) > 1}
    )
    if shared:
        raise DataError(
            f"query {shared.pop()!r} is in two places, {blocks.name(places[0])} and {blocks.name(places[1])}: rows of "
            "a query must be adjacent, so sort the data by query"
        )
