from __future__ import annotations

from pathlib import Path

import optuna  # noqa: F401 - skips this file if it is not installed

from kinrank.datasets import make_intents
from kinrank.study import tuning
from kinrank.study.tuning import Plan, tune


def test_optuna_samples_after_the_list(tmp_path: Path):
    intents = make_intents(160, 0, n_docs=12, n_features=6, spread=1.0)
    plan = Plan(["knn"], n_trials=9, folds=2, reference="reference")
    tuned = tune(intents, tmp_path, plan)
    drawn = [trial for trial in tuned.trials if trial.stage == "drawn"]
    assert len(drawn) == 3
    assert len({trial.key for trial in drawn}) == 3
    assert drawn[0].params is not None
    assert {"block mean", "block predictors", "penalty", "n_components"} <= set(drawn[0].params)
    assert "block text" not in drawn[0].params
    earlier = [(trial.params or {}, trial.quality) for trial in drawn]
    again = [tuning.sampled_proposal(intents, "reference", "error", earlier, 0).params for _ in range(2)]
    assert again[0] == again[1]
