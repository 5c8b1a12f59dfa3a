from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lightgbm  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pytest

from benchmarks import confirmation, kin_quality
from kinrank import KinRanker
from kinrank.datasets import make_intents
from kinrank.learn.lambdamart import LambdaMART


@pytest.mark.slow
def test_small_version_resumes_and_prints_no_quality_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(confirmation, "RESULTS", tmp_path)
    monkeypatch.setattr(kin_quality, "MOST_TREES", 10)
    # Without a library that is not among the dependencies for development
    small = replace(confirmation.COLLECTIONS["small"], methods=("kin", "without", "bag"))
    monkeypatch.setitem(confirmation.COLLECTIONS, "small", small)
    figures = confirmation.run("small", repeats="1", shapes="one")
    row = figures["NDCG@10"]["small"]
    assert (row["queries"], row["repeats"], row["folds"]) == (90, 1, 3)
    assert row["over rival"] == {**row[f"over {row['rival']}"], **row["over rival"]}
    assert row["over without"]["p, Holm"] >= row["over without"]["p"]
    assert figures["tests in the family"] == 2
    assert "0." not in capsys.readouterr().err
    times = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")}
    assert len(times) == 3 * len(small.methods)
    assert confirmation.run("small", repeats="1", shapes="one") == figures
    assert {file: file.stat().st_mtime_ns for file in times} == times
    next(tmp_path.rglob("0-2-bag-*.npz")).unlink()
    without_a_fold = confirmation.run("small", repeats="1", shapes="one", measure="no")["NDCG@10"]["small"]
    assert (without_a_fold["queries"], without_a_fold["folds"]) == (60, 2)


def test_bag_has_the_members_of_the_ranker_and_sees_only_features():
    queries = make_intents(60, 0, n_docs=8, n_features=5)
    ranker = KinRanker(
        trees=LambdaMART(5, 4, 0.1, 5, params={"feature_fraction": 0.5}, n_threads=1),
        settings={"n_repeats": 2, "n_members": 2},
    )
    bag = confirmation.EqualBag.fit(ranker, queries)
    ranker.fit(queries)
    assert len(bag.members) == len(ranker.members_) == 4
    assert all(member.booster_.num_feature() == queries.n_features for member in bag.members)
    assert np.isfinite(bag.predict(queries)).all()
    assert 0 < bag.quality <= 1


@pytest.mark.parametrize(
    ("tested", "expected"),
    [
        ({"gain": 0.01, "p, Holm": 0.01, "high": 0.02}, "confirmed"),
        ({"gain": -0.01, "p, Holm": 0.01, "high": -0.001}, "refuted"),
        ({"gain": 0.0001, "p, Holm": 0.9, "high": 0.0019}, "refuted"),
        ({"gain": 0.001, "p, Holm": 0.4, "high": 0.004}, "open"),
    ],
)
def test_reading(tested: dict[str, float], expected: str):
    assert confirmation.reading(tested) == expected
