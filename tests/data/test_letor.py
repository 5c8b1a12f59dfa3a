from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinrank import QuerySet, read_letor
from kinrank.data.letor import write_letor
from kinrank.errors import DataError, FileFormatError
from tests.data.query_sets import assert_same, query_sets

TEXT = b"2 qid:10 1:0.5 3:0.25 #docid = GX0-1 inc = 1 prob = 0.5\n0 qid:10 2:1 #docid = GX0-2\n1 qid:7 1:-3e-2\n"


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def read_text(text: str, **options: int) -> QuerySet:
        path = tmp_path / "judged.txt"
        path.write_text(text, encoding="utf-8")
        return read_letor(path, **options)

    return read_text


@settings(deadline=None)  # the first call loads the compiled kernel
@given(query_sets(columns=False))
def test_written_files_read_back_exactly(tmp_path_factory: pytest.TempPathFactory, queries: QuerySet) -> None:
    path = tmp_path_factory.mktemp("letor") / "judged.txt"
    write_letor(queries, path)
    assert_same(read_letor(path), queries)


@pytest.mark.parametrize(("suffix", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress)])
def test_compressed_files(tmp_path: Path, suffix: str, pack) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / f"judged.txt{suffix}"
    path.write_bytes(pack(TEXT))
    queries = read_letor(path)
    assert queries.qid.tolist() == [10, 7]
    assert queries.offsets.tolist() == [0, 2, 3]
    assert queries.grades.tolist() == [2, 0, 1]
    assert queries.X.tolist() == [[0.5, 0, 0.25], [0, 1, 0], [np.float32(-3e-2), 0, 0]]
    assert queries.doc_id is not None
    assert queries.doc_id.tolist() == ["GX0-1", "GX0-2", ""]
    write_letor(queries, path)
    assert_same(read_letor(path), queries)


NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False, width=64).map(repr),
    st.floats(-1e6, 1e6).map(lambda v: f"{v:.25f}"),
    st.decimals(allow_nan=False, allow_infinity=False, places=19).map(str),
    st.from_regex(r"[+-]?([0-9]{1,25}\.?[0-9]{0,25}|\.[0-9]{1,25})([eE][+-]?[0-9]{1,2})?", fullmatch=True),
    st.integers(2**24, 2**26).map(str),
).filter(lambda word: abs(float(word)) < 3e38)


@given(st.lists(NUMBERS, min_size=1, max_size=8))
def test_numbers_equal_those_python_reads(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    path = tmp_path_factory.mktemp("letor") / "judged.txt"
    path.write_text("".join(f"{words[0]} qid:1 1:{word}\n" for word in words))
    queries = read_letor(path)
    expected = np.array([float(word) for word in words]).astype(np.float32)
    np.testing.assert_array_equal(queries.X[:, 0], expected)
    np.testing.assert_array_equal(np.signbit(queries.X[:, 0]), np.signbit(expected))
    assert queries.grades[0] == expected[0]


def test_numbers_halfway_between_two_float32(read) -> None:  # type: ignore[no-untyped-def]
    half = "1.000000059604644775390625"  # 1 + 2**-24: half a step above 1, ties go to even
    words = [half, half + "0000001", half[:-1] + "4", "16777217", "16777219"]
    queries = read("".join(f"0 qid:1 1:{word}\n" for word in words))
    assert queries.X[:, 0].tolist() == [np.float32(float(word)) for word in words]


def test_missing_and_infinite_values(read) -> None:  # type: ignore[no-untyped-def]
    queries = read("1 qid:a 1:nan 2:NaN#x\n1 qid:a 1:NAN 3:inf 4:-Infinity #docid = x\n0 qid:a 4:2 # y\n")
    expected = [[np.nan, np.nan, 0, 0], [np.nan, 0, np.inf, -np.inf], [0, 0, 0, 2]]
    np.testing.assert_array_equal(queries.X, np.array(expected, dtype=np.float32))
    assert queries.doc_id is not None
    assert queries.doc_id.tolist() == ["x", "x", "y"]


@pytest.mark.parametrize(
    ("comment", "doc_id"),
    [
        ("#docid = GX0 inc = 1", "GX0"),
        ("#docid=GX0", "GX0"),
        ("# docid =GX0", "GX0"),
        ("# GX0 more", "GX0"),
        ("#GX0", "GX0"),
        ("#http://a.b/c#d", "http://a.b/c#d"),
        ("#docid", "docid"),
        ("#docid = 語", "語"),
    ],
)
@pytest.mark.parametrize("value", ["0.5", "inf"], ids=["kernel", "python"])
def test_document_ids_come_from_the_comment(read, comment: str, doc_id: str, value: str) -> None:  # type: ignore[no-untyped-def]
    assert read(f"1 qid:1 1:{value} {comment}\n").doc_id.tolist() == [doc_id]


def test_file_without_comments_has_no_document_ids(read) -> None:  # type: ignore[no-untyped-def]
    assert read("1 qid:1 1:1\n").doc_id is None


@pytest.mark.parametrize(
    ("ids", "expected"), [(["3", "12"], [3, 12]), (["03", "12"], ["03", "12"]), (["q3", "12"], ["q3", "12"])]
)
def test_query_ids_are_numbers_only_if_all_are(read, ids: list[str], expected: list[object]) -> None:  # type: ignore[no-untyped-def]
    assert read("".join(f"1 qid:{i} 1:1\n" for i in ids)).qid.tolist() == expected


def test_blank_lines_comments_tabs_and_returns(read) -> None:  # type: ignore[no-untyped-def]
    queries = read("# made by hand\r\n\r\n  1\tqid:1  1:2\t 2:3 \r\n   \n0 qid:1 2:4#x\n1 qid:1")
    assert queries.X.tolist() == [[2, 3], [0, 4], [0, 0]]
    assert queries.doc_id.tolist() == ["", "x", ""]


def test_scattered_rows_are_grouped(read) -> None:  # type: ignore[no-untyped-def]
    queries = read("0 qid:1 1:1\n0 qid:2 1:2\n0 qid:1 1:3\n")
    assert queries.qid.tolist() == [1, 2]
    assert queries.X.ravel().tolist() == [1, 3, 2]
    assert queries.in_caller_order(queries.X.ravel()).tolist() == [1, 2, 3]


def test_n_features_sets_the_number_of_columns(read) -> None:  # type: ignore[no-untyped-def]
    assert read("0 qid:1 1:1\n", n_features=3).X.tolist() == [[1, 0, 0]]


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ("1 1:0.5", r"line 3: expected qid:<query> after the grade, found '1:0.5'"),
        ("1", "line 3: expected qid:<query> after the grade, found 'the end of the line'"),
        ("1 qid: 1:2", "line 3: expected qid:<query> after the grade, found 'qid:'"),
        ("good qid:8 1:2", r"line 3: query 8: expected a grade \(a number\) first, found 'good'"),
        ("nan qid:8 1:2", "line 3: query 8: expected a grade .* found 'nan'"),
        ("1 qid:8 1:abc", "line 3: query 8: feature 1 is 'abc', expected a number"),
        ("1 qid:8 1:", "line 3: query 8: feature 1 is '', expected a number"),
        ("1 qid:8 1:nano", "line 3: query 8: feature 1 is 'nano', expected a number"),
        ("1 qid:8 1:0x10", "line 3: query 8: feature 1 is '0x10'"),
        ("1 qid:8 1:1e", "line 3: query 8: feature 1 is '1e'"),
        ("1 qid:8 1:1e39", "line 3: query 8: feature 1 is '1e39', expected a number in the range of float32"),
        ("1 qid:8 0:1 1:2", "line 3: query 8: feature 0 in '0:1', but indices start at 1"),
        ("1 qid:8 2:1 1:2", "line 3: query 8: feature 1 after feature 2, but indices must ascend"),
        ("1 qid:8 2:1 2:2", "line 3: query 8: feature 2 after feature 2"),
        ("1 qid:8 1 2:2", "line 3: query 8: expected index:value, found '1'"),
        ("1 qid:8 x:1", "line 3: query 8: expected index:value, found 'x:1'"),
        ("1 qid:8 -1:1", "line 3: query 8: expected index:value, found '-1:1'"),
        ("1 qid:8 4:1", "line 3: query 8: feature 4, expected at most 3: increase n_features"),
        ("1 qid:8 99999999999999999999:1", "line 3: query 8: feature 99999999999999999999, expected at most 3"),
    ],
)
def test_invalid_line_raises_with_its_number(read, line: str, match: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FileFormatError, match=match) as caught:
        read(f"1 qid:7 1:1\n# comment\n{line}\n0 qid:7 1:1\n", n_features=3)
    assert caught.value.line == 3


def test_huge_feature_index_raises(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FileFormatError, match="line 1: query 1: feature 20000000, expected at most 1000000"):
        read("0 qid:1 20000000:1\n")


@pytest.mark.parametrize("text", ["", "\n\n", "# only words\n"])
def test_file_without_rows_raises(read, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(FileFormatError, match="the file has no rows"):
        read(text)


@pytest.mark.parametrize("value", [b"1", b"inf"])
def test_ids_that_are_not_utf8_raise(tmp_path: Path, value: bytes) -> None:
    (tmp_path / "latin.txt").write_bytes(b"1 qid:caf\xe9 1:" + value + b"\n")
    with pytest.raises(FileFormatError, match="an id is not UTF-8"):
        read_letor(tmp_path / "latin.txt")


def test_python_can_read_the_last_line(read) -> None:  # type: ignore[no-untyped-def]
    np.testing.assert_array_equal(read("1 qid:1 1:1\n0 qid:1 1:inf").X.ravel(), [1, np.inf])


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_truncated_or_uncompressed_file_raises(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"judged.txt{suffix}"
    path.write_bytes(TEXT)
    with pytest.raises(FileFormatError, match="cannot be decompressed"):
        read_letor(path)
    path.write_bytes((gzip if suffix == ".gz" else lzma).compress(TEXT)[:-4])
    with pytest.raises(FileFormatError, match="cannot be decompressed"):
        read_letor(path)


@pytest.mark.parametrize(("qid", "doc_id"), [("a b", "d"), ("a#b", "d"), ("a", "d e")])
def test_writing_ids_with_whitespace_raises(tmp_path: Path, qid: str, doc_id: str) -> None:
    with pytest.raises(DataError, match="cannot be written to a LETOR file"):
        write_letor(QuerySet.from_arrays([[1.0]], [1], qid=[qid], doc_id=[doc_id]), tmp_path / "x.txt")


def test_writing_unjudged_queries_raises(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not judged"):
        write_letor(QuerySet.from_arrays([[1.0]], qid=[1]), tmp_path / "x.txt")
