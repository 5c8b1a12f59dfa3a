"""Detection of queries in two blocks, with bounded memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from kinrank.data.blocks import QuerySetBlocks
from kinrank.data.hashes import IdHashes
from kinrank.data.queryset import QuerySet
from kinrank.scale._sum_tree import check_no_repeated_queries, query_hashes

N_BLOCKS, N_IDS = 64, 16_384


def whole_numbers(block: int) -> IdHashes:
    return query_hashes(np.arange(block * N_IDS, (block + 1) * N_IDS))


def hashes(block: int) -> IdHashes:
    return np.sort(np.random.default_rng(block).integers(1 << 64, size=N_IDS, dtype=np.uint64))


@pytest.mark.parametrize("hashes", [whole_numbers, hashes])
def test_only_a_fraction_of_the_hashes_is_in_memory(hashes: Callable[[int], IdHashes]) -> None:
    blocks = QuerySetBlocks(QuerySet.from_arrays(np.zeros((N_BLOCKS, 1)), group=[1] * N_BLOCKS), rows_per_block=1)
    tracemalloc.start()
    try:
        check_no_repeated_queries(blocks, hashes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.5 * 8 * N_BLOCKS * N_IDS


def test_hashes_of_whole_numbers_are_unique() -> None:
    ids = np.array([-(2**63), 2**63 - 1, 2**62, *range(-5000, 5000)])
    assert len(np.unique(query_hashes(ids))) == len(ids)
