from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import lightgbm  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pytest

from benchmarks import kin_quality


@pytest.mark.slow
def test_small_version_runs_in_parts_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kin_quality, "RESULTS", tmp_path)
    monkeypatch.setattr(kin_quality, "MOST_TREES", 30)
    # Without the libraries that are not among the dependencies for development
    monkeypatch.setattr(kin_quality, "METHODS", ("lightgbm", "bag", "single", "without", "kin"))
    small = replace(kin_quality.DATA_SETS["small"], peers=("lightgbm",))
    monkeypatch.setitem(kin_quality.DATA_SETS, "small", small)
    n_methods = len(kin_quality.METHODS)
    part = kin_quality.run("small", folds="0", repeats="0", workers="1")
    assert part["parts still to be measured"] == {"small": 5 * n_methods}
    first = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.npz")}
    assert len(first) == n_methods
    row = kin_quality.run("small", workers="1")["NDCG@10"]["small"]
    assert (row["queries"], row["repeats"]) == (90, 2)
    assert row["kin"] > row["single"] > 0.3
    assert row["against without"]["test"] == "resampled"
    assert row["against bag"]["p, Holm"] >= row["against bag"]["p"]
    assert all(file.stat().st_mtime_ns == time for file, time in first.items())
    assert len(list(tmp_path.rglob("*.npz"))) == 6 * n_methods
    next(tmp_path.rglob("1-2-kin-*.npz")).unlink()
    next(tmp_path.rglob("0-2-single-*.npz")).unlink()
    reported = kin_quality.run("small", repeats="none", methods="required")
    assert reported["NDCG@10"]["small"]["repeats"] == 1
    assert "single" not in reported["NDCG@10"]["small"]
    assert reported["parts still to be measured"] == {"small": 1}


def test_folds_test_every_query_once_and_never_train_on_it():
    for repeat in range(2):
        splits = kin_quality.DATA_SETS["small"].splits(repeat)
        tested = np.concatenate([test.qid for _, _, test in splits])
        assert len(tested) == len(set(tested.tolist())) == 90
        for train, vali, test in splits:
            assert not set(test.qid) & (set(train.qid) | set(vali.qid))
            assert not set(vali.qid) & set(train.qid)


def test_required_gains():
    row = {"against best peer": {"gain": 0.006, "p, Holm": 0.001}, "against bag": {"gain": 0.001, "p, Holm": 0.3}}
    assert kin_quality.holds({"gain": 0.005, "p": 0.01}, row)
    assert not kin_quality.holds({"gain": 0.005, "bag": 0.004, "p": 0.01}, row)
    assert not kin_quality.holds({"gain": 0.005, "p": 0.0001}, row)
    assert kin_quality.holds({}, row)
