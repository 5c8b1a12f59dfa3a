from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank import CellRanker, KnnRanker
from kinrank.data.queryset import QuerySet
from kinrank.data.trec import run_from_scores, write_run
from kinrank.datasets import make_two_camps
from kinrank.errors import LeakError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG
from kinrank.progress import on_progress
from kinrank.rankers import RANKERS, load
from kinrank.study.experiment import run_experiment

QUICK = {
    "kin": {
        "n_neighbors": 9,
        "settings": {"n_members": 2},
        "trees": LambdaMART(n_trees=5, min_rows_in_leaf=5, n_threads=1),
    }
}
QUICK["choices"] = {"ranker": "single"}


@pytest.fixture(scope="module")
def camps() -> QuerySet:
    return make_two_camps(n_queries=60, n_docs=10, seed=0)


@pytest.mark.parametrize("name", [name for name in RANKERS if name != "cells"])  # see the test of cells below
def test_testing_a_saved_ranker_on_its_training_queries_raises(name: str, camps: QuerySet, tmp_path: Path):
    model = str(tmp_path / "model")
    RANKERS[name](**QUICK.get(name, {})).fit(camps[:40]).save(model)
    as_text = camps[39:].replace(qid=camps.qid[39:].astype(np.str_))  # the first is a training query
    with pytest.raises(LeakError, match=f"model: 1 of 21 test queries .* for example '{camps.qid[39]}'"):
        run_experiment([model], as_text)
    assert run_experiment([model], as_text, leaks="warn").unchecked == ()
    assert run_experiment([model], camps[40:]).unchecked == ()
    load(model).copy().save(model)
    with pytest.raises(LeakError, match="model: 40 of 60 test queries"):
        run_experiment([model], camps)


def test_learned_from_follows_add_and_remove(camps: QuerySet, tmp_path: Path):
    ranker = KnnRanker(5).fit(camps[:30]).add(camps[30:40]).remove(camps.qid[:10])
    ranker.save(tmp_path)
    seen = load(tmp_path).learned_from(camps)
    assert seen is not None
    assert np.flatnonzero(seen).tolist() == list(range(10, 40))


def test_training_queries_of_a_cell_model_are_unchecked(camps: QuerySet, tmp_path: Path):
    model = str(tmp_path / "model")
    CellRanker(9, n_cells=4).fit(camps[:40]).save(model)
    assert run_experiment([model], camps[40:]).unchecked == (model,)
    with pytest.raises(LeakError, match="model: 4 of 60 test queries"):  # each cell stores one query id
        run_experiment([model], camps)


def test_run_is_evaluated_once_for_all_folds(camps: QuerySet, tmp_path: Path):
    run, steps = str(tmp_path / "few.run"), []
    few = camps[:3]
    write_run(run_from_scores(few, few.X[:, 0].astype(np.float64)), run)
    with on_progress(lambda *step: steps.append(step)):
        found = run_experiment([run, "single"], camps, folds=5)
    entrant = found.comparison[run]
    assert entrant.coverage is not None
    assert entrant.coverage.absent_queries == 57
    assert entrant.coverage.unjudged_top == 0
    assert [stage for stage, done, _ in steps if not done] == [f"{run}, in all"]
    assert steps[-1] == ("fold 5 of 5, single, in all", 10, 10)
    assert found.comparison["single"].evaluation.per_query[NDCG @ 10].shape == (60,)
