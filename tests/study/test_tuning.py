from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank import KnnRanker, SingleRanker
from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_queries
from kinrank.datasets import make_intents, make_two_camps
from kinrank.describe import Describer
from kinrank.errors import DataError, FileFormatError, JobError, LeakError, ParameterError
from kinrank.learn.rankrls import RankRLS
from kinrank.measure import NDCG
from kinrank.rankers import RANKERS
from kinrank.rankers._local.choose import choose_neighbors
from kinrank.rankers.persistence import from_settings, read_settings, settings_of
from kinrank.registry import import_extra
from kinrank.scale import Processes, use_executor
from kinrank.study._sweep import sweep_neighbors, sweep_trees
from kinrank.study.tuning import (
    Plan,
    available_families,
    follow_up_proposals,
    listed_proposals,
    per_query_values,
    tune,
)

MEASURE = NDCG @ 10
LINEAR = ("single", "knn")
SHARED = {"reference": None, "group": None, "missing": "mean"}


@pytest.fixture(scope="module")
def intents() -> QuerySet:
    return make_intents(160, 0, n_docs=12, n_features=6, spread=1.0)


def test_sweep_equals_cross_validation_of_every_setting(intents: QuerySet):
    folds = list(fold_queries(intents, 3))
    choice = sweep_neighbors(KnnRanker(), folds, MEASURE, counts=(5, 20), strengths=(None, 0.1))
    for (k, strength), quality in choice.quality.items():
        prior = {"prior": "none"} if strength is None else {"prior": "global", "prior_strength": strength}
        values = [per_query_values(KnnRanker(k, **prior).fit(train), test, MEASURE) for train, test in folds]
        assert quality == pytest.approx(np.concatenate(values).mean(), abs=1e-6)
    single = [per_query_values(SingleRanker("rankrls").fit(train), test, MEASURE) for train, test in folds]
    assert choice.single == pytest.approx(np.concatenate(single).mean(), abs=1e-6)
    few = sweep_neighbors(KnnRanker(), folds, MEASURE, counts=(5,), strengths=(None,), enough=40)
    subsample = folds[0][1][np.linspace(0, len(folds[0][1]) - 1, 40).astype(int)]
    assert few.quality[5, None] == pytest.approx(KnnRanker(5, prior="none").fit(folds[0][0]).score(subsample), abs=1e-6)


def test_k_must_be_possible_in_every_fold(intents: QuerySet):
    folds = [(intents[:40], intents[100:110]), (intents[:100], intents[110:])]
    choice = sweep_neighbors(KnnRanker(), folds, MEASURE, counts=(5, 20, 50), strengths=(None,))
    assert {k for k, _ in choice.quality} == {5, 20}
    assert choice.n_queries == 60


def test_folds_without_values_are_ignored(intents: QuerySet):
    measure = NDCG(no_relevant="skip") @ 10
    train, test = intents[:80], intents[80:120]
    nothing_relevant = intents[120:].replace(y=np.zeros(intents[120:].n_rows))
    alone = sweep_neighbors(KnnRanker(), [(train, test)], measure, counts=(5,), strengths=(None,))
    both = sweep_neighbors(
        KnnRanker(), [(train, test), (train, nothing_relevant)], measure, counts=(5,), strengths=(None,)
    )
    assert both == alone
    with pytest.raises(DataError, match="no fold has queries with a value of"):
        sweep_neighbors(KnnRanker(), [(train, nothing_relevant)], measure)


def test_sweep_breaks_ties_by_document_id(intents: QuerySet):
    named = intents.replace(doc_id=np.arange(intents.n_rows))
    choice = choose_neighbors(KnnRanker().fit(named[:80]), named[80:], [5], measure=NDCG(ties="doc_id") @ 10)
    alone = KnnRanker(5, prior="none").fit(named[:80])
    assert choice.quality[5, None] == pytest.approx(alone.score(named[80:]), abs=1e-6)


def test_settings_file_has_the_best_trial(intents: QuerySet, tmp_path: Path):
    tuned = tune(intents, tmp_path / "study", Plan(LINEAR, n_trials=9, folds=3, reference="reference"))
    assert len(tuned.trials) == 9
    assert tuned.best.quality == max(trial.quality for trial in tuned.trials)
    assert tuned.best.family == "knn"
    assert {trial.stage for trial in tuned.trials} == {"list", "follow-up"}
    ranker = read_settings(tmp_path / "study" / "settings.json")
    assert settings_of(ranker) == tuned.best.record
    values = [per_query_values(tuned.best.make().fit(train), test, MEASURE) for train, test in fold_queries(intents, 3)]
    assert np.concatenate(values).mean() == pytest.approx(tuned.best.quality, abs=1e-6)


def test_interrupted_study_is_resumed(intents: QuerySet, tmp_path: Path):
    keys: list[str] = []
    plan = {"families": LINEAR, "folds": 3}
    first = tune(intents, tmp_path / "a", Plan(**plan, n_trials=3), on_trial=lambda trial: keys.append(trial.key))
    log = tmp_path / "a" / "trials.jsonl"
    log.write_text(log.read_text() + '{"key": "half a li')  # killed while writing
    both = tune(intents, tmp_path / "a", Plan(**plan, n_trials=6), on_trial=lambda trial: keys.append(trial.key))
    assert both.trials[:3] == first.trials
    assert first.answer is None  # only linear models were tried
    assert both.answer is not None
    assert both.answer.gain.verdict == "gain"
    assert keys == [trial.key for trial in both.trials]
    assert len(set(keys)) == 6
    at_once = tune(intents, tmp_path / "b", Plan(**plan, n_trials=6))
    assert [(trial.key, trial.quality) for trial in at_once.trials] == [
        (trial.key, trial.quality) for trial in both.trials
    ]
    assert [json.loads(line)["key"] for line in log.read_text().splitlines()] == keys


class CountingProcesses(Processes):
    """Two processes that record the number of items of each call."""

    def __init__(self) -> None:
        super().__init__(2)
        self.given: list[int] = []

    def map_unordered(self, function: Callable[[Any], Any], items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        self.given.append(len(items))
        return super().map_unordered(function, items)


@pytest.mark.slow
def test_tuning_in_processes_gives_the_same_trials(intents: QuerySet, tmp_path: Path):
    plan = Plan(["single"], n_trials=1, folds=2)
    here = tune(intents, tmp_path / "here", plan)
    with use_executor(CountingProcesses()) as processes:
        there = tune(intents, tmp_path / "there", plan)
    assert processes.given == [2]
    assert [(trial.key, trial.quality) for trial in there.trials] == [
        (trial.key, trial.quality) for trial in here.trials
    ]


def test_tuning_on_validation_queries(intents: QuerySet, tmp_path: Path):
    tuned = tune(intents[:120], tmp_path, Plan(["single"], n_trials=1), validation=intents[120:])
    expected = SingleRanker(RankRLS()).fit(intents[:120]).score(intents[120:])
    assert tuned.best.quality == pytest.approx(expected)


def test_tuning_stops_at_the_budget(intents: QuerySet, tmp_path: Path):
    short = tune(intents, tmp_path / "a", Plan(LINEAR, seconds=1e-9, folds=2))
    assert (len(short.trials), short.stopped) == (1, "reached the limit of 1e-09 seconds")
    done = tune(intents, tmp_path / "b", Plan(["single"], folds=2))
    assert (len(done.trials), done.stopped) == (3, "no settings left to try")
    with pytest.raises(ParameterError, match="n_trials must be at least 1 and seconds positive, got 0 and None"):
        tune(intents, tmp_path / "c", Plan(n_trials=0))


def test_tuning_ends_with_variations_of_the_best(intents: QuerySet, tmp_path: Path):
    tuned = tune(intents, tmp_path, Plan(["knn"], folds=2))
    assert tuned.stopped == "no settings left to try"
    assert {trial.stage for trial in tuned.trials} == {"list", "follow-up"}


def test_folder_of_another_study_raises(intents: QuerySet, tmp_path: Path):
    study = tmp_path / "study"
    tune(intents, study, Plan(["single"], n_trials=1, folds=2))
    with pytest.raises(JobError, match=r"another tuning study \(different data\)"):
        tune(intents[:100], study, Plan(["single"], n_trials=1, folds=2))
    with pytest.raises(JobError, match=r"another tuning study \(different validation, measure, seed\)"):
        tune(intents, study, Plan(["single"], n_trials=1, folds=3, measure=NDCG @ 5, seed=1))
    with pytest.raises(JobError, match=r"another tuning study \(different reference, missing\)"):
        tune(intents, study, Plan(["single"], n_trials=1, folds=2, reference="reference", missing="zero"))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(JobError, match=r"is not empty and has no study\.json of a tuning study"):
        tune(intents, tmp_path / "full", Plan(["single"]))
    assert intents.fingerprint() != intents.replace(y=intents.grades[::-1].copy()).fingerprint()


def test_study_recovers_from_a_missing_settings_file(intents: QuerySet, tmp_path: Path):
    plan = Plan(["single"], n_trials=2, folds=2)
    best = tune(intents, tmp_path / "study", plan).best
    (tmp_path / "study" / "settings.json").unlink()
    tune(intents, tmp_path / "study", plan)
    assert settings_of(read_settings(tmp_path / "study" / "settings.json")) == best.record
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / ".123.study.json").write_text("{")
    assert len(tune(intents, tmp_path / "new", plan).trials) == 2


def test_seen_validation_queries_raise(intents: QuerySet, tmp_path: Path):
    with pytest.raises(LeakError, match="10 of 20 test queries were seen in training"):
        tune(intents[:100], tmp_path, Plan(["single"]), validation=intents[90:110])


def test_study_depends_on_query_columns(intents: QuerySet, tmp_path: Path):
    def described(vectors: np.ndarray, name: str = "vector") -> QuerySet:
        return intents.replace(query_columns={name: vectors})

    vectors = np.random.default_rng(0).standard_normal((160, 4)).astype(np.float32)
    tune(described(vectors), tmp_path, Plan(["single"], n_trials=1, folds=2))
    for other in (intents, described(-vectors), described(vectors, "color"), described(vectors.astype(np.float64))):
        with pytest.raises(JobError, match=r"another tuning study \(different data\)"):
            tune(other, tmp_path, Plan(["single"], n_trials=1, folds=2))
    assert len(tune(described(vectors), tmp_path, Plan(["single"], n_trials=1, folds=2)).trials) == 1


def test_listed_proposals_depend_on_the_queries(intents: QuerySet):
    plain = [repr(each.ranker) for each in listed_proposals(intents, ["knn"], **SHARED)]
    assert not any("text" in each for each in plain)
    vectors = intents.replace(query_columns={"vector": np.eye(160, 4, dtype=np.float32)})
    assert any("text" in repr(each.ranker) for each in listed_proposals(vectors, ["knn"], **SHARED))
    assert {"single", "knn"} <= set(available_families(intents))
    fractions = intents.replace(y=intents.grades + 0.5)
    assert available_families(fractions) == ["single", "knn"]
    with pytest.raises(ParameterError, match="unknown family 'svm'"):
        list(listed_proposals(intents, ["svm"], **SHARED))
    keys = [each.key for each in [*listed_proposals(intents, LINEAR, **SHARED), *follow_up_proposals(KnnRanker(400))]]
    assert len(set(keys)) == len(keys)


def test_settings_files_hold_nested_parameters_and_wrong_files_raise(tmp_path: Path):
    ranker = KnnRanker(30, describe=Describer({"mean": 2.0}, n_components=3), learner=RankRLS(penalty=0.1))
    assert repr(from_settings(json.loads(json.dumps(settings_of(ranker))))) == repr(ranker)
    file = tmp_path / "settings.json"
    for wrong in ("{", "[]", '{"ranker": "svm", "settings": {}}', '{"ranker": "knn", "settings": {"kay": 1}}'):
        file.write_text(wrong)
        with pytest.raises(FileFormatError, match="as kinrank tune writes it"):
            read_settings(file)


def test_kin_family_gets_the_group_column(tmp_path: Path):
    camps = make_two_camps(n_queries=60, n_docs=10, seed=0)
    grouped = camps.replace(query_columns={"topic": np.arange(60) // 2})
    tuned = tune(grouped, tmp_path, Plan(["kin"], n_trials=1, folds=2, group="topic"))
    assert tuned.best.family == "kin"
    assert tuned.best.record["settings"]["group_column"] == "topic"
    assert tuned.best.quality > 0.9


def test_every_registered_ranker_can_be_tried():
    queries = make_two_camps(n_queries=20, seed=0)
    for name in RANKERS:
        found = list(listed_proposals(queries, [name], reference=0, group=None, missing="mean"))
        assert found
        assert {candidate.family for candidate in found} == {name}
        assert found[0].ranker.get_params(deep=False).get("missing", "mean") == "mean"


def test_number_of_trees_is_the_best_on_the_folds(intents: QuerySet, tmp_path: Path):
    import_extra("lightgbm", "lightgbm")
    tuned = tune(intents, tmp_path, Plan(["lambdamart"], n_trials=1, folds=2))
    learner = tuned.best.make().get_params()["learner"]
    assert 1 <= learner.n_trees < 300
    folds = list(fold_queries(intents, 2))
    assert learner.n_trees == sweep_trees(learner.set_params(n_trees=300), folds)
