from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinrank.data.blocks import FolderBlocks
from kinrank.data.files import filesystem_of
from kinrank.data.parquet import ParquetBlocks, write_parquet
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, FileFormatError, ParameterError
from kinrank.registry import import_extra


def queries(sizes: list[int], *, text: bool = False) -> QuerySet:
    rng = np.random.default_rng(0)
    set_ = QuerySet.from_arrays(rng.random((sum(sizes), 2)), rng.integers(0, 3, sum(sizes)), group=sizes)
    return set_.replace(qid=np.array([f"q{i}" for i in range(len(sizes))])) if text else set_


def read_all(blocks: ParquetBlocks) -> QuerySet:
    return QuerySet.concat([part for block in range(len(blocks)) for part in blocks.read(block)])


@given(
    st.lists(st.integers(1, 25), min_size=1, max_size=30),
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 3),
    st.booleans(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_query_is_read_whole_however_files_are_split(
    tmp_path: Path, sizes: list[int], group_rows: int, block_rows: int, n_files: int, text: bool
) -> None:
    set_ = queries(sizes, text=text)
    folder = Path(str(tmp_path) + f"-{hash((tuple(sizes), group_rows, n_files, text))}")
    folder.mkdir(exist_ok=True)
    table = set_.to_table()
    cuts = np.linspace(0, len(table), n_files + 1).astype(int)
    for number, (first, last) in enumerate(pairwise(cuts)):
        part = table.slice(first, last - first)
        if text and number == 1:  # as pandas writes a category
            part = part.set_column(0, "qid", part["qid"].dictionary_encode())
        pq.write_table(part, folder / f"{number}.parquet", row_group_size=group_rows)
    blocks = ParquetBlocks(folder, block_rows)
    found = read_all(pickle.loads(pickle.dumps(blocks)))
    assert found.qid.tolist() == set_.qid.tolist()
    np.testing.assert_array_equal(found.X, set_.X)
    np.testing.assert_array_equal(found.offsets, set_.offsets)
    assert sum(blocks.n_rows(block) for block in range(len(blocks))) == set_.n_rows
    assert blocks.feature_names == set_.feature_names


def test_files_are_read_through_fsspec(tmp_path: Path) -> None:
    fsspec = import_extra("fsspec", "ray")
    write_parquet(queries([3, 4]), tmp_path / "judged.parquet")
    fsspec.filesystem("memory").pipe("/kin/judged.parquet", (tmp_path / "judged.parquet").read_bytes())
    assert len(read_all(ParquetBlocks("memory://kin", 100))) == 2
    assert filesystem_of("memory://kin")[1] == "/kin"
    assert len(read_all(ParquetBlocks(f"file://{tmp_path}", 100))) == 2


def test_damaged_file_raises_with_file_and_row_group(tmp_path: Path) -> None:
    path = tmp_path / "judged.parquet"
    pq.write_table(
        queries([50] * 20).to_table(), path, row_group_size=250, compression="zstd", write_page_checksum=True
    )
    blocks = ParquetBlocks(path, 250)
    offset = pq.ParquetFile(path).metadata.row_group(2).column(3).data_page_offset
    damaged = bytearray(path.read_bytes())
    damaged[offset + 40] ^= 0xFF
    path.write_bytes(damaged)
    list(blocks.read(0))
    with pytest.raises(FileFormatError, match=r"judged.parquet: row group 2 cannot be read as Parquet"):
        list(blocks.read(2))
    path.write_bytes(b"not parquet")
    with pytest.raises(FileFormatError, match=r"judged.parquet: cannot be read as Parquet"):
        ParquetBlocks(path, 250)


def test_file_format_error_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(FileFormatError("a.parquet", 3, "is wrong")))
    assert (str(error), error.path, error.line) == ("a.parquet, line 3: is wrong", "a.parquet", 3)


def test_invalid_files_and_arguments_raise(tmp_path: Path) -> None:
    table = queries([2, 2]).to_table()
    pq.write_table(table.take([0, 2, 1, 3]), tmp_path / "mixed.parquet")
    with pytest.raises(DataError, match=r"mixed.parquet, row group 0: the rows of query 0 are not adjacent"):
        read_all(ParquetBlocks(tmp_path / "mixed.parquet", 10))
    with pytest.raises(DataError, match="no column 'query' for the query ids"):
        ParquetBlocks(tmp_path / "mixed.parquet", 10, qid="query")
    with pytest.raises(ParameterError, match="rows_per_block must be at least 1, got 0"):
        ParquetBlocks(tmp_path / "mixed.parquet", 0)
    (tmp_path / "some").mkdir()
    with pytest.raises(DataError, match="there are no Parquet files in it"):
        ParquetBlocks(tmp_path / "some", 10)
    pq.write_table(table.slice(0, 0), tmp_path / "some" / "a.parquet")
    with pytest.raises(DataError, match="these Parquet files have no rows"):
        ParquetBlocks(tmp_path / "some", 10)
    pq.write_table(table, tmp_path / "some" / "b.parquet")
    other = table.rename_columns(["qid", "y", "f1", "f9"]).set_column(0, "qid", pa.array([7, 7, 8, 8]))
    pq.write_table(other, tmp_path / "some" / "c.parquet")
    with pytest.raises(
        DataError, match=r"c.parquet, row group 0: features differ from those of .*a.parquet \(\['f2', 'f9'\]\)"
    ):
        read_all(ParquetBlocks(tmp_path / "some", 2))


def test_fingerprint_changes_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "judged.parquet"
    write_parquet(queries([3, 4]), path)
    before = ParquetBlocks(path, 10).fingerprint()
    assert ParquetBlocks(path, 10).fingerprint() == before
    write_parquet(queries([3, 5]), path)
    assert ParquetBlocks(path, 10).fingerprint() != before


def test_folder_blocks_are_pickled_as_a_path(tmp_path: Path) -> None:
    queries([3, 4, 5]).save(tmp_path / "judged")
    blocks = FolderBlocks(tmp_path / "judged", 7)
    copy = pickle.loads(pickle.dumps(blocks))
    assert len(pickle.dumps(blocks)) < 500
    assert copy.starts == blocks.starts == [0, 2, 3]
    assert copy.fingerprint() == blocks.fingerprint()
    assert blocks.name(1).endswith("judged, queries 2 to 2")


def test_address_that_arrow_cannot_read_is_refused_with_its_reason() -> None:
    with pytest.raises(ParameterError, match=r"s3://bucket/models cannot be opened: .*zone"):
        filesystem_of("s3://bucket/models?zone=eu")
