from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.datasets import make_two_camps
from kinrank.errors import ParameterError
from kinrank.measure import NDCG
from kinrank.study.comparison import compare
from kinrank.study.entrants import evaluate_ranker
from kinrank.study.report import Report, collect, render
from kinrank.study.report.groups import kind_gains
from kinrank.study.report.ingredients import ingredient_shares
from kinrank.study.report.page_tables import extremes, heat_table
from kinrank.study.report.shares import groups_by_column, names_by_words


@pytest.fixture(scope="module")
def camps() -> QuerySet:
    """Two camps that want opposite things, with a column and a word that name them."""
    queries = make_two_camps(n_queries=120, seed=0)
    camp = np.where(queries.X[queries.offsets[:-1], 1] > 0, "rising", "falling")
    texts = np.array([f"{word} query {qid}" for word, qid in zip(camp, queries.qid, strict=True)])
    ids = np.array([f"d{row}" for row in range(queries.n_rows)])
    return queries.replace(query_columns={"text": texts, "camp": camp}, doc_id=ids)


def report_on(camps: QuerySet, *rankers, **settings) -> Report:
    train, test = camps[:80], camps[80:]
    entrants = [evaluate_ranker(name, each.fit(train), test, [NDCG @ 10]) for name, each in rankers]
    return collect(compare(test, entrants, n_resamples=99), **settings)


@pytest.fixture(scope="module")
def report(camps: QuerySet) -> Report:
    titles = {f"d{row}": f"Document {row}" for row in range(camps.n_rows)}
    rankers = ("one", SingleRanker("rankrls")), ("own", KnnRanker(10))
    return report_on(camps, *rankers, by="camp", titles=titles, sources={"Test file": "camps.csv"})


def test_kinds_are_the_values_of_a_column(report: Report):
    gains = kind_gains(report)
    assert {each.label.partition(": ")[2] for each in gains} == {"rising", "falling"}
    assert sum(each.gain.n for each in gains) == 40
    page = render(report)
    assert "Queries by their <b><bdi>camp</bdi></b>" in page
    assert "Grouped by camp, the " in page


def test_a_column_is_enough_without_neighbors(camps: QuerySet):
    rankers = ("one", SingleRanker("rankrls")), ("other", SingleRanker("ranksvm"))
    page = render(report_on(camps, *rankers, by="camp"))
    assert '<section id="kinds"' in page
    assert '<section id="weights"' not in page


def test_found_kinds_are_named_by_their_words(camps: QuerySet):
    found = report_on(camps, ("one", SingleRanker("rankrls")), ("own", KnnRanker(10)))
    assert found.neighbors is not None
    assert found.neighbors.shares is not None
    assert {kind.name for kind in found.neighbors.shares.kinds} == {"rising", "falling"}


def test_unknown_column_raises(camps: QuerySet):
    with pytest.raises(ParameterError, match="no query column 'intent' to group queries by; query columns: 'text'"):
        groups_by_column(camps, "intent")


def test_numbers_are_named_with_their_column(camps: QuerySet):
    values = np.arange(len(camps)) % 2
    assert list(groups_by_column(camps.replace(query_columns={"movie": values}), "movie")) == ["movie 0", "movie 1"]


def test_rare_values_are_other(camps: QuerySet):
    values = np.array([f"v{min(query, 9)}" for query in range(len(camps))])
    groups = groups_by_column(camps.replace(query_columns={"v": values}), "v")
    assert list(groups) == ["v9", "v0", "v1", "v2", "v3", "other"]
    assert sorted(np.concatenate(list(groups.values())).tolist()) == list(range(len(camps)))


def test_words_of_ids_name_nothing():
    assert names_by_words([["1", "2", "3"], ["4", "5", "6"]]) == ["", ""]


def test_importance_and_direction_are_apart(report: Report):
    analysis = report.neighbors
    assert analysis is not None
    assert analysis.shares is not None
    rows = {row["feature"]: row for row in heat_table(report, analysis, analysis.shares)["rows"]}
    wanted = rows[report.comparison.queries.feature_names[0]]
    assert all(int(cell["share"]) > 50 for cell in wanted["cells"])
    assert {cell["way"] or wanted["way"] for cell in wanted["cells"]} == {"up", "down"}


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


def test_only_blends_have_ingredients(report: Report):
    assert report.ingredients == {}
    assert ingredient_shares(None, report.comparison.queries) == {}
