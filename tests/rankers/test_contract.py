"""Runs the check suite on every registered ranker, with default settings and with the settings listed here."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from kinrank import CellRanker, KinRanker, KnnRanker, QueryClassRanker, SingleRanker
from kinrank.checks import linear_queries, ranker_checks
from kinrank.kin import Describer
from kinrank.learn import LEARNERS
from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers import RANKERS, Ranker

FEW = LambdaMART(n_trees=30, n_leaves=5, min_rows_in_leaf=5)
# A learner that is registered is checked in local models too; trees are kept few, because each query grows its own.
LOCAL = {"lambdamart": {"learner": FEW, "prior": "none"}}

MAKERS: dict[str, partial[Ranker]] = {name: partial(RANKERS[name]) for name in RANKERS} | {
    "single rankrls": partial(SingleRanker, "rankrls"),
    "single unscaled": partial(SingleRanker, "ranksvm", scale="none", missing="zero"),
    "single lambdamart": partial(SingleRanker, LambdaMART(n_trees=30)),
    # With the default k all queries are neighbors; a smaller k tests local models.
    "knn online": partial(KnnRanker, 9),
    "knn offline-1": partial(KnnRanker, 9, mode="offline-1"),
    "knn offline-2": partial(KnnRanker, 9, mode="offline-2"),
    "knn radius": partial(KnnRanker, radius=2.0, neighbor_weights="tricube"),
    "knn kernel and prior": partial(KnnRanker, 15, neighbor_weights="gaussian", prior="global"),
    **{f"knn {name}": partial(KnnRanker, 9, **LOCAL.get(name, {"learner": name})) for name in LEARNERS},
    "knn by index and describer": partial(
        KnnRanker, 9, index="exact", describe=Describer(["mean", "max"], n_components=3)
    ),
    "knn cells": partial(CellRanker, 9, n_cells=8),
    "knn cells, kernel and prior": partial(CellRanker, 15, n_cells=6, neighbor_weights="gaussian", prior="global"),
    "kin cells": partial(KinRanker, trees=FEW, settings={"n_cells": 8}),
    "kin with a base": partial(KinRanker, base="single", trees=FEW, settings={"n_repeats": 1}),
    "query-class": partial(QueryClassRanker, n_types=4),
}


# A training query that comes back has a score of a base that has seen it, and no longer one of a fold.
EXCEPT = {("kin with a base", "check_replacing_a_query_restores_the_scores")}
CASES = {(name, check.__name__): (make, check) for name, make in MAKERS.items() for check in ranker_checks()}


@pytest.mark.parametrize("case", [case for case in CASES if case not in EXCEPT], ids="-".join)
def test_contract(case: tuple[str, str]) -> None:
    make, check = CASES[case]
    check(make)


def test_a_query_that_comes_back_to_a_ranker_with_a_base_moves_scores_little() -> None:
    queries = linear_queries()
    ranker = MAKERS["kin with a base"]().fit(queries)
    before = ranker.predict(queries)
    after = ranker.remove(queries.qid[:2]).add(queries[:2]).predict(queries)
    assert ranker.n_judged_ == len(queries)
    assert 0 < np.abs(after - before).max() < 0.01 * before.std()
