from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank import QuerySet
from kinrank.errors import DamagedFolderError, DataError, ForeignFolderError
from tests.data.query_sets import assert_same, query_sets

X3 = np.arange(6.0).reshape(3, 2)


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=20))
def test_rows_are_grouped_by_query_in_given_order(qid: list[str]) -> None:
    row = np.arange(len(qid), dtype=np.float32)
    queries = QuerySet.from_arrays(row[:, None], row, qid=qid, doc_id=[f"d{i}" for i in range(len(qid))])
    assert queries.qid.tolist() == list(dict.fromkeys(qid))
    for one in queries:
        mine = [i for i, q in enumerate(qid) if q == one.qid[0]]
        assert one.X.ravel().tolist() == one.grades.tolist() == mine
        assert one.doc_id is not None
        assert one.doc_id.tolist() == [f"d{i}" for i in mine]
    assert queries.in_caller_order(queries.grades).tolist() == row.tolist()


@given(query_sets(), st.data())
def test_selecting_queries_equals_selecting_them_one_by_one(queries: QuerySet, data: st.DataObject) -> None:
    index = data.draw(st.lists(st.integers(-len(queries), len(queries) - 1), unique_by=lambda i: i % len(queries)))
    selected = queries[index]
    assert selected.qid.tolist() == [queries.qid[i] for i in index]
    for position, i in enumerate(index):
        assert_same(selected[position], queries[i])
    mask = np.isin(np.arange(len(queries)), np.arange(len(queries))[index])
    assert_same(queries[mask], queries[sorted(i % len(queries) for i in index)])


def numbered(sizes: list[int]) -> QuerySet:
    """Return queries whose arrays hold the number of their row or query."""
    rows, queries = np.arange(sum(sizes)), np.arange(len(sizes))
    return QuerySet.from_arrays(
        rows[:, None],
        rows,
        group=sizes,
        doc_id=rows,
        doc_title=rows,
        sample_weight=rows,
        query_columns={"number": queries, "vector": np.tile(queries[:, None], 2)},
        doc_columns={"site": rows},
    )


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.booleans(), st.data())
def test_all_arrays_of_a_row_and_of_a_query_go_with_it(sizes: list[int], masked: bool, data: st.DataObject) -> None:
    queries = numbered(sizes)
    n = len(queries)
    chosen = data.draw(st.lists(st.integers(0, n - 1), unique=True))
    rows = data.draw(st.lists(st.integers(0, queries.n_rows - 1), unique=masked))
    if masked:
        by_query, by_row = queries[np.isin(np.arange(n), chosen)], queries.take_rows(np.isin(queries.doc_id, rows))
        chosen, rows = sorted(chosen), sorted(rows)
    else:
        by_query, by_row = queries[chosen], queries.take_rows(rows)
    expected_rows = [row for i in chosen for row in range(queries.offsets[i], queries.offsets[i + 1])]
    owner = queries.query_of_row
    for selected, wanted in ((by_query, expected_rows), (by_row, sorted(rows, key=lambda row: owner[row]))):
        # Every field of a QuerySet is one of these, or the same for all rows.
        per_row = {"X", "y", "doc_id", "doc_title", "sample_weight", "doc_columns"}
        per_query = {"qid", "query_columns", "offsets"}
        assert {field.name for field in fields(QuerySet)} - per_row - per_query == {"feature_names", "row_order"}
        assert selected.doc_columns["site"].tolist() == wanted
        for name in per_row - {"doc_columns"}:
            assert getattr(selected, name).ravel().astype(np.int64).tolist() == wanted, name
        owners = list(dict.fromkeys(owner[wanted].tolist()))
        assert selected.qid.tolist() == selected.query_columns["number"].tolist() == owners
        assert selected.query_columns["vector"].tolist() == [[i, i] for i in owners]
        assert selected.query_of_row.tolist() == [owners.index(owner[row]) for row in wanted]
        assert selected.feature_names == queries.feature_names
        assert selected.row_order is None


@given(query_sets(), st.slices(5))
def test_slices_work_as_for_lists(queries: QuerySet, part: slice) -> None:
    assert queries[part].qid.tolist() == queries.qid.tolist()[part]
    assert_same(queries[part], queries[np.arange(len(queries))[part]])


def test_slices_share_memory() -> None:
    queries = QuerySet.from_arrays(X3, [0, 1, 2], qid=[1, 2, 3], doc_id=["a", "b", "c"])
    part = queries[1:]
    assert np.shares_memory(part.X, queries.X)
    assert np.shares_memory(part.grades, queries.grades)
    assert part.offsets.tolist() == [0, 1, 2]


@given(query_sets())
def test_concat_undoes_slicing(queries: QuerySet) -> None:
    cut = len(queries) // 2
    parts = [queries[:cut], queries[cut:]] if cut else [queries]
    assert_same(QuerySet.concat(parts), queries)


def test_saved_set_opens_memory_mapped(tmp_path: Path) -> None:
    queries = QuerySet.from_arrays(
        X3,
        [0, 1, 2],
        qid=["b", "a", "b"],
        doc_id=[7, 8, 9],
        query_columns={"text": ["one", None]},
        doc_columns={"site": ["x", "y", "z"]},
    )
    queries.save(tmp_path / "set")
    opened = QuerySet.open(tmp_path / "set", verify=True)
    assert isinstance(opened.X, np.memmap)
    assert isinstance(opened[1:].X, np.memmap)
    assert np.shares_memory(opened[1:].X, opened.X)
    assert_same(opened, queries)
    assert opened.query_columns["text"].tolist() == ["one", ""]
    with pytest.raises(ValueError, match="read-only"):
        opened.X[0, 0] = 1.0


def test_save_replaces_a_query_set_but_nothing_else(tmp_path: Path) -> None:
    one = QuerySet.from_arrays([[1.0]], qid=["a"])
    one.save(tmp_path / "set")
    QuerySet.from_arrays([[2.0]], qid=["b"]).save(tmp_path / "set")
    assert QuerySet.open(tmp_path / "set").qid.tolist() == ["b"]
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    with pytest.raises(ForeignFolderError, match="not a kinrank queries folder"):
        one.save(tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


def test_open_with_verify_detects_a_changed_byte(tmp_path: Path) -> None:
    QuerySet.from_arrays(X3, qid=[1, 1, 2]).save(tmp_path / "set")
    [file] = (tmp_path / "set").rglob("X.npy")
    raw = bytearray(file.read_bytes())
    raw[-1] ^= 1
    file.write_bytes(raw)
    with pytest.raises(DamagedFolderError, match=r"X\.npy has changed"):
        QuerySet.open(tmp_path / "set", verify=True)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: QuerySet.from_arrays(X3[0], qid=[1]), "two dimensions"),
        (lambda: QuerySet.from_arrays(X3), "qid is missing"),
        (lambda: QuerySet.from_arrays(X3, qid=[1, 1, 2], group=[3]), "got both qid and group"),
        (lambda: QuerySet.from_arrays(X3, qid=[1, 1]), r"one id per row of X \(3\), got 2"),
        (lambda: QuerySet.from_arrays(X3, qid=[1, None, 2]), r"qid\[1\] is None"),
        (lambda: QuerySet.from_arrays(X3, qid=[1.0, 2.5, 2.0]), r"qid\[1\] is 2.5"),
        (lambda: QuerySet.from_arrays(X3, qid=[1.0, np.inf, 2.0]), r"qid\[1\] is inf"),
        (lambda: QuerySet.from_arrays(X3, group=[1, 1]), "group sums to 2 rows"),
        (lambda: QuerySet.from_arrays(X3, group=[3, 0]), r"group\[1\] is 0"),
        (lambda: QuerySet.from_arrays(X3, [0, 1], qid=[1, 1, 1]), "y must have one value per row"),
        (lambda: QuerySet.from_arrays(X3, [0, np.inf, 1], qid=[1, 1, 1]), r"y\[1\] is inf"),
        (lambda: QuerySet.from_arrays(X3, qid=[1, 1, 1], feature_names=["a", "a"]), "2 different names"),
        (lambda: QuerySet.from_arrays(X3, qid=[1, 1, 2], query_columns={"t": ["x"]}), "one value per query"),
        (lambda: QuerySet.from_arrays(X3, qid=[1, 1, 2])[[0.5]], "by position, slice or mask, got float64"),
        (lambda: QuerySet.from_arrays(X3, qid=[1, 1, 2])[[True]], "a mask must have one value per query"),
        (lambda: QuerySet.from_arrays(X3, qid=[1, 1, 2]).grades, "not judged"),
        (
            lambda: QuerySet.from_arrays(X3, qid=[1, 1, 2]).take_rows([0.5]),
            "rows by position, slice or mask, got float64",
        ),
        (lambda: QuerySet.from_arrays(X3, qid=[1, 1, 2]).take_rows([True]), r"one value per row \(3\), got shape"),
        (lambda: QuerySet.concat([]), "at least one"),
    ],
)
def test_invalid_arguments_raise(build, match: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(DataError, match=match):
        build()


def test_concat_of_incompatible_sets_raises() -> None:
    a = QuerySet.from_arrays([[1.0]], qid=["1"])
    with pytest.raises(DataError, match="query '1' is in more than one set"):
        QuerySet.concat([a, a])
    with pytest.raises(DataError, match="text in one set and numbers in another"):
        QuerySet.concat([a, QuerySet.from_arrays([[1.0]], qid=[1])])
    with pytest.raises(DataError, match="features differ"):
        QuerySet.concat([a, QuerySet.from_arrays([[1.0, 2.0]], qid=["2"])])


def test_concat_drops_nothing_that_one_set_lacks() -> None:
    a = QuerySet.from_arrays([[1.0]], y=[2], qid=["a"], sample_weight=[0.5])
    both = QuerySet.concat([a, QuerySet.from_arrays([[2.0]], qid=["b"])])
    assert both.judged.tolist() == [True, False]
    assert both.grades.tolist() == [2.0, 0.0]
    assert both.row_weights.tolist() == [0.5, 1.0]
    named = QuerySet.from_arrays([[2.0]], qid=["b"], doc_id=["d"])
    with pytest.raises(DataError, match="document ids are missing in set 1 of 2"):
        QuerySet.concat([a, named])
    described = QuerySet.from_arrays([[2.0]], qid=["b"], query_columns={"text": ["alien"]})
    with pytest.raises(DataError, match="query column 'text' is missing in set 2 of 2"):
        QuerySet.concat([described, a])


def test_position_out_of_range_raises_index_error() -> None:
    with pytest.raises(IndexError, match="query 1 is out of range for 1 queries"):
        QuerySet.from_arrays([[1.0]], qid=["a"])[1]
    with pytest.raises(IndexError, match="query -2 is out of range for 1 queries"):
        QuerySet.from_arrays([[1.0]], qid=["a"])[[0, -2]]
    with pytest.raises(IndexError, match="row 5 is out of range for 1 rows"):
        QuerySet.from_arrays([[1.0]], qid=["a"]).take_rows([5])
