"""Fixtures: a report on generated queries with texts, some of them hostile."""

from __future__ import annotations

import numpy as np
import pytest

from kinrank.data.queryset import QuerySet
from kinrank.datasets import make_intents
from kinrank.measure import AP, NDCG
from kinrank.study.comparison import Comparison, compare
from kinrank.study.report import Report, collect, render
from kinrank.study.study import Study

HOSTILE = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</script><script>document.title='owned'</script>",
    "{{ 7 * 7 }} & ampersand",
    "'; DROP TABLE queries; --",
    "\u202eright to left\x00 \x1b[31mcontrol",
    "schön 漢字 🎬",
)


def named(queries: QuerySet, ending: str = "") -> QuerySet:
    """Add texts to the queries: `HOSTILE` with an ending first, then plain ones."""
    hostile = (f"{text}{ending}" for text in HOSTILE)
    plain = (f"query number {qid}" for qid in queries.qid[len(HOSTILE) :].tolist())
    return queries.replace(query_columns={"text": np.array([*hostile, *plain])})


@pytest.fixture(scope="session")
def world() -> tuple[QuerySet, QuerySet]:
    """Training and test queries with three intents and texts."""
    queries = make_intents(n_train=300, n_test=150, n_docs=15, n_features=8, spread=1.0)
    queries = queries.replace(feature_names=("<b>reference</b>", *queries.feature_names[1:]))
    return named(queries[:300], " judged"), named(queries[300:])


@pytest.fixture(scope="session")
def comparison(world: tuple[QuerySet, QuerySet]) -> Comparison:
    """A comparison of one model, a model per query and a model per type."""
    train, test = world
    names = ("single(learner='rankrls')", "knn(n_neighbors=60)", "query-class(n_types=2)")
    study = Study.split(train, test, measures=[NDCG @ 10, AP])
    return compare(test, [study.enter(name) for name in names])


@pytest.fixture(scope="session")
def report(comparison: Comparison, world: tuple[QuerySet, QuerySet]) -> Report:
    """The contents of the report."""
    return collect(comparison, title="A <i>generated</i> world", judged=world[0])


@pytest.fixture(scope="session")
def page(report: Report) -> str:
    """The page."""
    return render(report)
