"""The five tools must not contradict each other: the same data, the same verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lightgbm  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pytest

from benchmarks.common import judged_text, msrd
from kinrank import KinRanker
from kinrank.data.queryset import QuerySet
from kinrank.measure import NDCG
from kinrank.study.answer import Answer
from kinrank.study.comparison import compare
from kinrank.study.entrants import evaluate_entrant
from kinrank.study.experiment import run_experiment
from kinrank.study.headroom import headroom
from kinrank.study.report import collect
from kinrank.study.report.words import headline, points
from kinrank.study.tuning import Plan, tune
from kinrank.study.validation import validate
from tests.study import worlds

MEASURE = NDCG @ 10
KIN = "kin"
FAMILIES = ("single", "kin", "lambdamart")
N_TRIALS = 9  # three linear models, two of kin, three LightGBM, and kin without local models


@pytest.fixture(autouse=True)
def _one_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cross-fit once even with few queries, to save time."""
    monkeypatch.setattr("kinrank.rankers.kin.ranker._MOST_REPEATS", 1)


def answers(train: QuerySet, test: QuerySet, folder: Path) -> dict[str, Answer]:
    """Ask every tool about the same queries."""
    kin = KinRanker()
    comparison = compare(
        test,
        [evaluate_entrant(name, test, [MEASURE], train=train) for name in ("single(learner=rankrls)", KIN)],
        n_resamples=99,
    )
    report = collect(comparison, judged=train)
    assert headline(report).endswith(" single(learner=rankrls)")
    assert points(report)[0] == report.answer.text.replace(" -", " −").replace("(-", "(−")
    return {
        "headroom": headroom(train, test, ranker=kin).answer,
        "train --validate": validate("kin", KinRanker().fit(train), train, test).answer,
        "compare": run_experiment([KIN, "single(learner=rankrls)"], test, train=train).answer,
        "tune": tune(train, folder, Plan(FAMILIES, n_trials=N_TRIALS), validation=test).answer,
        "report": report.answer,
    }


def check_agreement(found: dict[str, Answer], expected: tuple[str, str] | None = None) -> None:
    """Fail if two tools differ in a verdict, or in the sign of a significant difference."""
    texts = "\n".join(f"{tool}: {answer.text}" for tool, answer in found.items())
    verdicts = {tool: (shown(answer.verdict), shown(answer.own_verdict)) for tool, answer in found.items()}
    assert len(set(verdicts.values())) == 1, texts
    if expected is not None:
        assert set(verdicts.values()) == {expected}, texts


def shown(verdict: str | None) -> str:
    """A gain that is ruled out and one that is not shown are the same to the reader: no gain to rely on."""
    return verdict if verdict in ("gain", "loss") else "no gain"


@pytest.mark.parametrize(
    ("world", "expected"),
    [
        (worlds.with_intents, ("gain", "gain")),
        (worlds.without_intents, ("no gain", "no gain")),
        (worlds.for_trees, ("loss", "no gain")),
    ],
)
def test_tools_agree_on_generated_queries(world: Callable[[int], QuerySet], expected: tuple[str, str], tmp_path: Path):
    queries = world(420)
    check_agreement(answers(queries[:260], queries[260:], tmp_path), expected)


@pytest.mark.data("text/mwmbl")
@pytest.mark.slow
def test_tools_agree_on_a_fold_of_web_search(data_dir: Path, tmp_path: Path):
    queries, fold = judged_text("mwmbl")
    check_agreement(answers(queries[fold > 3][::2], queries[fold == 1], tmp_path))


@pytest.mark.data("text/msrd")
@pytest.mark.slow
def test_tools_agree_on_a_sample_of_movie_search(data_dir: Path, tmp_path: Path):
    parts = msrd()
    train, test = (parts[part][np.arange(0, len(parts[part]), step)] for part, step in (("train", 60), ("test", 10)))
    check_agreement(answers(train, test, tmp_path))
