"""The simulated users of the benchmark of live choices."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.choices_live import TOP, Traffic, summary
from kinrank import QuerySet
from tests.serve.asgi import Client  # noqa: F401 - these tests need the extra


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    queries = QuerySet.from_arrays(
        np.zeros((4, 1)),
        [2, 0, 1, 0],
        qid=[1, 1, 2, 2],
        doc_id=["a", "b", "c", "d"],
        query_columns={"text": ["alien", "heat"]},
    )
    return Traffic.simulated(queries, 2_000)


def test_a_list_is_measured_against_all_judged_documents(traffic: Traffic):
    assert traffic.quality(0, ["a", "b"]) == 1
    assert traffic.quality(0, ["unknown", "a"]) == pytest.approx(1 / np.log2(3))
    assert traffic.quality(1, ["a", "b"]) == 0


def test_users_examine_and_choose_as_stated(traffic: Traffic):
    lists = (["b", "a"], ["d", "c"])
    clicks = [traffic.clicked(search, lists[query]) for search, query in enumerate(traffic.asked)]
    for query, best in enumerate("ac"):
        mine = [clicked for clicked, asked in zip(clicks, traffic.asked, strict=True) if asked == query]
        attraction = 0.7 if best == "a" else 0.1 + 0.6 / 3
        assert np.mean([best in clicked for clicked in mine]) == pytest.approx(attraction / 2, abs=0.06)
        assert np.mean([lists[query][0] in clicked for clicked in mine]) == pytest.approx(0.1, abs=0.04)


def test_summary_compares_the_same_searches(traffic: Traffic):
    n = len(traffic.asked)
    explored = np.arange(n) % TOP == 0
    flat = np.full(n, 0.5)
    learned = {
        "choices": {"quality": flat + 0.1, "explored": np.zeros(n, dtype=np.bool_), "fallbacks": 0},
        "exploring": {"quality": np.where(explored, 0.0, 0.6), "explored": explored, "fallbacks": 0},
    }
    figures = summary(traffic, {"engine": flat - 0.1, "KinRanker": flat}, learned)
    assert figures["explored"] == 0.1
    assert figures["NDCG@10 by week"]["exploring, not explored"] == [0.6] * 10
    assert figures["differences"]["choices minus KinRanker, last week"]["gain"] == pytest.approx(0.1)
    assert figures["differences"]["cost of exploring, first week"]["gain"] == pytest.approx(-0.06)
    assert figures["differences"]["the same, not explored"]["gain"] == 0
