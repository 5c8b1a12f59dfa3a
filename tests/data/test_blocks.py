from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank.data.blocks import FolderBlocks, QuerySetBlocks, Sample
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError


def queries(sizes: list[int]) -> QuerySet:
    return QuerySet.from_arrays(np.zeros((sum(sizes), 1)), group=sizes)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=60), st.integers(1, 50))
def test_every_query_is_in_one_block_of_at_most_the_given_rows(sizes: list[int], rows: int) -> None:
    blocks = QuerySetBlocks(queries(sizes), rows)
    parts = [list(blocks.read(block)) for block in range(len(blocks))]
    assert [qid for some in parts for part in some for qid in part.qid.tolist()] == list(range(len(sizes)))
    for block, some in enumerate(parts):
        held = sum(part.n_rows for part in some)
        assert held == blocks.n_rows(block)
        assert held <= rows or sum(len(part) for part in some) == 1


@given(st.lists(st.integers(1, 30), min_size=1, max_size=200), st.integers(1, 50), st.integers(1, 3000))
def test_sample_is_all_of_the_data_or_spread_over_it(sizes: list[int], rows: int, wanted: int) -> None:
    blocks = QuerySetBlocks(queries(sizes), rows)
    sample = Sample.of_rows(blocks, wanted)
    picked = [qid for block in sample.blocks for part in sample.select(blocks.read(block)) for qid in part.qid.tolist()]
    assert picked == sorted(set(picked))
    if sum(sizes) <= wanted:
        assert picked == list(range(len(sizes)))
    else:
        assert sample.blocks[0] == 0
        assert sample.blocks[-1] == len(blocks) - 1


def test_fingerprint_changes_with_data_and_split() -> None:
    set_ = queries([2, 3, 4])
    prints = {QuerySetBlocks(set_, 5).fingerprint(), QuerySetBlocks(set_, 9).fingerprint()}
    prints.add(QuerySetBlocks(set_.replace(qid=np.array([7, 8, 9])), 5).fingerprint())
    assert len(prints) == 3
    assert QuerySetBlocks(set_, 5).fingerprint() == QuerySetBlocks(queries([2, 3, 4]), 5).fingerprint()
    assert QuerySetBlocks(set_, 5).name(1) == "queries 2 to 2"


def test_folder_blocks_work_from_another_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queries([2, 3]).save(tmp_path / "judged")
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(FolderBlocks("judged", 5))
    monkeypatch.chdir("/")
    (part,) = pickle.loads(sent).read(0)
    assert part.qid.tolist() == [0, 1]


def test_invalid_block_size_or_empty_data_raises() -> None:
    with pytest.raises(ParameterError, match="rows_per_block must be at least 1, got 0"):
        QuerySetBlocks(queries([1]), 0)
    with pytest.raises(DataError, match="no queries to learn from"):
        Sample.of_rows(QuerySetBlocks(queries([3])[:0], 5), 10)
