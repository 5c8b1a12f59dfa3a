from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinrank import QuerySet
from kinrank.data.parquet import iter_parquet, read_parquet, write_parquet
from kinrank.data.queryset import write_folder
from kinrank.errors import DataError, ForeignFolderError, ParameterError
from tests.data.query_sets import assert_same, query_sets


@settings(max_examples=25, deadline=None)  # every example writes to disk
@given(queries=query_sets(), rows_per_block=st.integers(1, 16))
def test_written_files_read_back_whole_in_blocks_and_as_a_folder(
    tmp_path_factory: pytest.TempPathFactory, queries: QuerySet, rows_per_block: int
) -> None:
    path = tmp_path_factory.mktemp("parquet")
    write_parquet(queries, path / "judged.parquet")
    assert_same(read_parquet(path / "judged.parquet"), queries)
    blocks = list(iter_parquet(path / "judged.parquet", rows_per_block=rows_per_block))
    assert sum(len(block) for block in blocks) == len(queries)
    assert all(block.n_rows <= rows_per_block or len(block) == 1 for block in blocks)
    write_folder(blocks, path / "streamed")
    queries.save(path / "saved")
    assert_same(QuerySet.open(path / "streamed", verify=True), queries)
    for file in (path / "saved").rglob("*.npy"):
        assert (path / "streamed" / file.relative_to(path / "saved")).read_bytes() == file.read_bytes()


def numbered(first: int, last: int, size: int = 3) -> QuerySet:
    qid = np.repeat(np.arange(first, last), size)
    return QuerySet.from_arrays(qid[:, None].astype(float), qid % 2, qid=qid)


def test_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for day, (first, last) in {"day=2": (4, 6), "day=1": (0, 4)}.items():
        (tmp_path / day).mkdir()
        write_parquet(numbered(first, last), tmp_path / day / "part.parquet")
    assert [block.qid.tolist() for block in iter_parquet(tmp_path, rows_per_block=10)] == [[0, 1, 2], [3, 4, 5]]
    assert_same(read_parquet(tmp_path), numbered(0, 6))


def test_query_may_span_row_groups_and_files(tmp_path: Path) -> None:
    table = numbered(0, 3, size=5).to_table()
    pq.write_table(table.slice(0, 7), tmp_path / "1.parquet", row_group_size=2)
    pq.write_table(table.slice(7), tmp_path / "2.parquet", row_group_size=2)
    blocks = list(iter_parquet(tmp_path, rows_per_block=3))
    assert [(block.qid.tolist(), block.n_rows) for block in blocks] == [([0], 5), ([1], 5), ([2], 5)]


@pytest.mark.parametrize("rows_per_block", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("qid", [["a", "b", "b", "a"], ["c", "a", "b", "a"]])
def test_query_with_scattered_rows_raises(tmp_path: Path, qid: list[str], rows_per_block: int) -> None:
    pq.write_table(pa.table({"qid": qid, "f": np.arange(4.0)}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="the rows of query 'a' are not adjacent"):
        list(iter_parquet(tmp_path / "x.parquet", rows_per_block=rows_per_block))


def test_invalid_arguments_of_iter_parquet_raise(tmp_path: Path) -> None:
    pq.write_table(pa.table({"query": [1], "f": [1.0]}), tmp_path / "x.parquet")
    with pytest.raises(DataError, match="no column 'qid'"):
        list(iter_parquet(tmp_path / "x.parquet"))
    with pytest.raises(ParameterError, match="rows_per_block must be at least 1, got 0"):
        list(iter_parquet(tmp_path / "x.parquet", rows_per_block=0))


def test_later_blocks_may_have_longer_ids(tmp_path: Path) -> None:
    blocks = [
        QuerySet.from_arrays([[1.0]], qid=["a"], doc_id=["x"], query_columns={"n": np.array([1], np.int32)}),
        QuerySet.from_arrays([[2.0]], qid=["longer"], doc_id=["y" * 30], query_columns={"n": np.array([2.5])}),
        QuerySet.from_arrays([[3.0]], qid=["b"], doc_id=["z"], query_columns={"n": np.array([3], np.int8)}),
    ]
    write_folder(iter(blocks), tmp_path / "set")
    opened = QuerySet.open(tmp_path / "set", verify=True)
    assert opened.qid.tolist() == ["a", "longer", "b"]
    assert opened.doc_id is not None
    assert opened.doc_id.tolist() == ["x", "y" * 30, "z"]
    assert opened.query_columns["n"].tolist() == [1.0, 2.5, 3.0]
    assert sorted(file.suffix for file in (tmp_path / "set").rglob("*.*")) == [".json"] + [".npy"] * 5


@pytest.mark.parametrize(
    ("second", "match"),
    [
        (QuerySet.from_arrays([[1.0]], [1], qid=["a"]), "query 'a' is in more than one block"),
        (QuerySet.from_arrays([[1.0, 2.0]], [1], qid=["b"]), "features differ between blocks"),
        (QuerySet.from_arrays([[1.0]], qid=["b"]), "'y' is in some blocks but not in others"),
        (QuerySet.from_arrays([[1.0]], [1], qid=[2]), "'qid' is text in one block and numbers in another"),
    ],
)
def test_incompatible_blocks_raise_and_leave_no_files(tmp_path: Path, second: QuerySet, match: str) -> None:
    first = QuerySet.from_arrays([[1.0]], [1], qid=["a"])
    with pytest.raises(DataError, match=match):
        write_folder([first, second], tmp_path / "set")
    assert list(tmp_path.iterdir()) == []


def test_write_folder_without_blocks_or_to_a_foreign_folder_raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no blocks to write"):
        write_folder([], tmp_path / "set")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(ForeignFolderError, match="not a kinrank queries folder"):
        write_folder([numbered(0, 1)], tmp_path / "mine")
