from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kinrank import QuerySet
from kinrank.data.trec import Qrels, Run, read_qrels, read_run, run_from_scores, scores_from_run, write_qrels, write_run
from kinrank.errors import DataError, FileFormatError
from tests.data.query_sets import query_sets


@settings(deadline=None)
@given(queries=query_sets(columns=False), data=st.data())
def test_scores_read_back_from_a_run_file(
    tmp_path_factory: pytest.TempPathFactory, queries: QuerySet, data: st.DataObject
) -> None:
    queries = queries.replace(doc_id=np.array([f"d{i}" for i in range(queries.n_rows)]))
    size = queries.n_rows
    numbers = st.floats(allow_nan=False)
    scores = data.draw(st.lists(numbers, min_size=size, max_size=size))
    path = tmp_path_factory.mktemp("trec") / "run.txt.gz"
    run = run_from_scores(queries, scores, tag="mine")
    write_run(run, path)
    again = read_run(path)
    assert again.tag == "mine"
    np.testing.assert_array_equal(again.rank, run.rank)
    np.testing.assert_array_equal(again.qid, run.qid)
    np.testing.assert_array_equal(scores_from_run(queries, again), scores)


def test_run_ranks_by_score_with_ties_in_row_order() -> None:
    queries = QuerySet.from_arrays(np.zeros((4, 1)), qid=[2, 2, 2, 1], doc_id=list("abcd"))
    run = run_from_scores(queries, [1.0, 3.0, 3.0, 0.0])
    assert run.qid.tolist() == [2, 2, 2, 1]
    assert run.doc_id.tolist() == list("bcad")
    assert run.rank.tolist() == [1, 2, 3, 1]


def test_qrels_read_back(tmp_path: Path) -> None:
    path = tmp_path / "judged.qrels"
    path.write_text("q1 0 d1 2\r\nq1\tITER  d2 -1\n\nq2 0 d1 0")
    qrels = read_qrels(path)
    assert qrels.qid.tolist() == ["q1", "q1", "q2"]
    assert qrels.doc_id.tolist() == ["d1", "d2", "d1"]
    assert qrels.grade.tolist() == [2, -1, 0]
    write_qrels(qrels, path)
    assert path.read_text() == "q1 0 d1 2\nq1 0 d2 -1\nq2 0 d1 0\n"
    assert len(read_qrels(path)) == 3


def test_absent_documents_and_mixed_id_types() -> None:
    queries = QuerySet.from_arrays(np.zeros((3, 1)), qid=["7", "7", "8"], doc_id=[1, 2, 3])
    run = Run(np.array([7, 7]), np.array(["2", "9"]), np.array([0.5, 4.0]), np.array([1, 2]))
    assert scores_from_run(queries, run).tolist() == [-np.inf, 0.5, -np.inf]
    np.testing.assert_array_equal(scores_from_run(queries, run, absent=np.nan), [np.nan, 0.5, np.nan])


@pytest.mark.parametrize(
    ("read", "text", "match"),
    [
        (read_qrels, "1 0 d 1\n1 0 d\n", r"x\.txt, line 2: expected 4 words .* found 3"),
        (read_qrels, "1 0 d good\n", r"line 1: expected a grade \(a whole number\), found 'good'"),
        (read_qrels, "\n\n", "the file is empty"),
        (read_run, "1 Q0 d 1 2.5 tag\n\n1 Q0 d 1 2.5\n", "line 3: expected 6 words .* found 5"),
        (read_run, "1 Q0 d 1 high tag\n", r"line 1: expected a score \(a number\), found 'high'"),
        (read_run, "1 Q0 d first 1.0 tag\n", r"line 1: expected a rank \(a whole number\), found 'first'"),
        (read_run, "1 Q0 d 1 nan tag\n", r"line 1: expected a score \(a number\), found 'nan'"),
    ],
)
def test_invalid_line_raises_with_its_number(tmp_path: Path, read, text: str, match: str) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=match):
        read(path)


def test_invalid_runs_and_scores_raise(tmp_path: Path) -> None:
    named = QuerySet.from_arrays(np.zeros((2, 1)), qid=[1, 1], doc_id=["a", "b"])
    twice = Run(np.array([1, 1]), np.array(["a", "a"]), np.array([0.5, 4.0]), np.array([1, 2]))
    with pytest.raises(DataError, match="document 'a' occurs twice in the run for query '1'"):
        scores_from_run(named, twice)
    with pytest.raises(DataError, match="no document ids"):
        scores_from_run(named.replace(doc_id=None), twice)
    with pytest.raises(DataError, match=r"one value per row \(2\), got shape \(3,\)"):
        run_from_scores(named, [1, 2, 3])
    with pytest.raises(DataError, match=r"scores\[1\] is nan"):
        run_from_scores(named, [1, np.nan])
    with pytest.raises(DataError, match="remove whitespace from ids and tags"):
        write_run(run_from_scores(named, [1, 2], tag="my run"), tmp_path / "run")
    with pytest.raises(DataError, match="remove whitespace from ids and tags"):
        write_qrels(Qrels(np.array([1]), np.array(["a b"]), np.array([1])), tmp_path / "qrels")
