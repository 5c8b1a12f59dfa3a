from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.datasets import make_two_camps
from kinrank.errors import ParameterError
from kinrank.measure import NDCG
from kinrank.study._entrants import evaluate_ranker
from kinrank.study.comparison import compare
from kinrank.study.report import Report, collect, render
from kinrank.study.report._page import extremes, feature_table


@pytest.fixture(scope="module")
def camps() -> QuerySet:
    """Two camps that want opposite things."""
    queries = make_two_camps(n_queries=120, seed=0)
    camp = np.where(queries.X[queries.offsets[:-1], 1] > 0, "rising", "falling")
    texts = np.array([f"{word} query {qid}" for word, qid in zip(camp, queries.qid, strict=True)])
    ids = np.array([f"d{row}" for row in range(queries.n_rows)])
    return queries.replace(query_columns={"text": texts, "camp": camp}, doc_id=ids)


def report_on(camps: QuerySet, *rankers, **settings) -> Report:
    train, test = camps[:80], camps[80:]
    entrants = [evaluate_ranker(name, each.fit(train), test, [NDCG @ 10]) for name, each in rankers]
    return collect(compare(test, entrants), **settings)


@pytest.fixture(scope="module")
def report(camps: QuerySet) -> Report:
    titles = {f"d{row}": f"Document {row}" for row in range(camps.n_rows)}
    rankers = ("one", SingleRanker("rankrls")), ("own", KnnRanker(10))
    return report_on(camps, *rankers, titles=titles, sources={"Test file": "camps.csv"})


def test_importance_and_direction_are_apart(report: Report):
    rows = feature_table(report)
    assert rows is not None
    wanted = {row["feature"]: row for row in rows}[report.comparison.queries.feature_names[0]]
    # It decides all queries, half of them upwards and half downwards.
    assert int(wanted["own"]) > 50
    assert wanted["own_way"] == "mixed"
    page = render(report)
    assert "differs from query to query" in page


def test_lists_before_and_after_have_titles(report: Report):
    best = extremes(report)["won"][0]
    before, after = best["lists"]["before"], best["lists"]["after"]
    assert [len(before), len(after)] == [10, 10]
    assert all(each["title"].startswith("Document ") for each in before + after)
    assert [float(each["grade"]) for each in after] == sorted((float(each["grade"]) for each in after), reverse=True)
    assert "<h3>Before and after</h3>" in render(report)


def test_titles_need_document_ids(camps: QuerySet):
    with pytest.raises(ParameterError, match="titles need document ids"):
        report_on(camps.replace(doc_id=None), ("a", SingleRanker()), ("b", KnnRanker(10)), titles={})


def test_method_names_data_date_and_versions(report: Report):
    page = render(replace(report, made="2026-01-01 00:00 UTC, with kinrank 0"))
    assert "<dd>camps.csv</dd>" in page
    assert "<dd>2026-01-01 00:00 UTC, with kinrank 0</dd>" in page
    assert "UTC, with kinrank " in report.made
