"""The five tools must not contradict each other: the same data, the same verdict."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.common import judged_text, msrd
from kinrank import KinRanker, KnnRanker, SingleRanker
from kinrank.cli import app
from kinrank.data.queryset import QuerySet
from kinrank.data.trec import run_from_scores, write_run
from kinrank.measure import NDCG, compare_paired, evaluate
from kinrank.study._answer import Answer, Claim
from kinrank.study._entrants import evaluate_ranker
from kinrank.study._folds import wanted_families
from kinrank.study.experiment import run_experiment
from kinrank.study.headroom import headroom
from kinrank.study.report import collect
from kinrank.study.report._page import headline, points
from kinrank.study.study import Study
from kinrank.study.validation import validate
from tests.conftest import THOROUGH
from tests.study import worlds

MEASURE = NDCG @ 10
KIN, LINEAR = "kin", "single(learner=rankrls)"


@pytest.fixture(autouse=True)
def _one_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross-fit once even with few queries, to save time."""
    monkeypatch.setattr("kinrank.rankers.kin._fitting._MOST_REPEATS", 1)


@pytest.fixture
def few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Grow few trees where they do not matter, to save time."""
    monkeypatch.setattr("kinrank.rankers.kin._settings.MOST_TREES", 80)


def answers(train: QuerySet, test: QuerySet) -> dict[str, Answer]:
    """Ask every tool about the same queries."""
    study = Study.split(train, test, families=wanted_families(None, train, [KinRanker().capabilities.remembers]))
    kin = KinRanker().fit(train)
    report = collect(study.compare([study.enter(LINEAR), evaluate_ranker(KIN, kin, test, [MEASURE])]), judged=train)
    assert LINEAR in headline(report)
    assert points(report)[0] == report.answer.text.replace(" -", " −").replace("(-", "(−")
    return {
        "headroom": headroom(train, test).answer,
        "train --validate": validate("kin", kin, study).answer,
        "compare": run_experiment([KIN, LINEAR], test, train=train).answer,
        "report": report.answer,
    }


def check_agreement(found: dict[str, Answer], expected: tuple[str, str] | None = None) -> None:
    """Fail if two tools differ in a difference, its p-values or the decision."""
    texts = "\n".join(f"{tool}: {answer.text}" for tool, answer in found.items())
    first, *others = found.values()
    for other in others:
        for claim, same in ((other.gain, first.gain), (other.own, first.own)):
            assert (claim is None) == (same is None), texts
            if claim is not None and same is not None:
                assert replace(claim, name="", against="") == replace(same, name="", against=""), texts
    verdicts = {tool: (shown(answer.verdict), shown(answer.own_verdict)) for tool, answer in found.items()}
    assert len(set(verdicts.values())) == 1, texts
    if expected is not None:
        assert set(verdicts.values()) == {expected}, texts


@pytest.mark.parametrize("world", [worlds.with_intents, worlds.without_intents])
def test_commands_print_one_p_for_one_pair(world: Callable[[int], QuerySet], tmp_path: Path, monkeypatch):
    """The same pair of rankers, named in every way that a command takes: difference, p and decision are the same."""
    monkeypatch.chdir(tmp_path)
    queries = world(300)
    train, test = queries[:200], queries[200:].replace(doc_id=np.arange(queries[200:].n_rows))
    train.save("train")
    test.save("test")
    names = {"linear": SingleRanker("rankrls").fit(train), "local": KnnRanker(20).fit(train)}
    for name, ranker in names.items():
        ranker.save(f"./{name}.model")
        write_run(run_from_scores(test, ranker.predict(test)), f"{name}.run")

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == 0, done.stderr
        return " ".join((done.stdout + done.stderr).split())

    def compared(*words: str) -> dict[str, Any]:
        return json.loads(CliRunner().invoke(app, ["compare", "test", *words, "--json"]).stdout)

    fitted = ("single(learner=rankrls)", "knn(n_neighbors=20)", "--train", "train")
    records = [compared("linear.model", "local.model"), compared("linear.run", "local.run"), compared(*fitted)]
    pair = compare_paired(*(values_of(names[name], test) for name in ("local", "linear")))
    claim = Claim("", "", pair)
    for record in records:
        [difference] = record["differences"]
        assert (difference["difference"], difference["p"]) == pytest.approx((pair.mean_difference, pair.p))
        if record["answer"] is not None:  # runs have no rung
            assert record["answer"]["gain"]["p"] == pytest.approx(pair.p)
            assert record["answer"]["gain"]["verdict"] == claim.verdict
    validate_it = ("--ranker", "knn", "--set", "n_neighbors=20", "--validate", "test", "--model", "validated")
    printed = {
        "compare": run("compare", "test", "linear.model", "local.model"),
        "report": run("report", "test", "linear.model", "local.model", "--measure", "NDCG@10", "--measure", "AP"),
        "train --validate": run("train", "train", *validate_it),
    }
    for verb, text in printed.items():
        assert f"({claim.evidence})" in text, verb
        assert claim.sentence().split()[0] in text, verb


def values_of(ranker: Any, queries: QuerySet) -> np.ndarray:
    return evaluate(queries, ranker.predict(queries), [MEASURE]).per_query[MEASURE]


def shown(verdict: str | None) -> str:
    """A gain that is ruled out and one that is not shown are the same to the reader: no gain to rely on."""
    return verdict if verdict in ("gain", "loss") else "no gain"


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize(
    ("world", "expected"),
    [(worlds.with_intents, ("gain", "gain")), (worlds.without_intents, ("no gain", "no gain"))],
)
def test_tools_agree_on_generated_queries(world: Callable[[int], QuerySet], expected: tuple[str, str]):
    queries = world(420)
    check_agreement(answers(queries[:260], queries[260:]), expected)


def test_tools_agree_on_generated_queries_for_trees():
    queries = worlds.for_trees(420)
    check_agreement(answers(queries[:260], queries[260:]), ("no gain", "no gain"))


@pytest.mark.data("text/mwmbl")
@pytest.mark.slow
def test_tools_agree_on_a_fold_of_web_search(data_dir: Path):
    queries, fold = judged_text("mwmbl")
    step = 1 if THOROUGH else 4
    check_agreement(answers(queries[fold > 3][:: 2 * step], queries[fold == 1][::step]))


@pytest.mark.data("text/msrd")
@pytest.mark.slow
@pytest.mark.usefixtures("few_trees")
def test_tools_agree_on_a_sample_of_movie_search(data_dir: Path):
    parts = msrd()
    train, test = (parts[part][np.arange(0, len(parts[part]), step)] for part, step in (("train", 60), ("test", 10)))
    check_agreement(answers(train, test))
