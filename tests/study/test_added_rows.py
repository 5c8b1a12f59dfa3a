from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kinrank import QuerySet, SingleRanker
from kinrank.cli import app
from kinrank.data.parquet import write_parquet
from kinrank.datasets import make_two_camps
from kinrank.errors import LeakError
from kinrank.study._leaks import find_added_rows
from kinrank.study.experiment import run_experiment
from kinrank.study.headroom import headroom

N_QUERIES, N_HITS, N_ADDED = 60, 12, 2


def engine_log(*, added: bool, missing: float = 0.0, combined: bool = True, seed: int = 0) -> QuerySet:
    """Return a log with positives-only judgments: the engine's hits and, if `added`, clicked documents beyond them.

    A document matches the query in its title, its body or both; the engine returns only documents that match. `missing`
    is the value of a clause that does not match. Without `combined`, no single feature tells which documents match.
    """
    rng = np.random.default_rng(seed)
    n_docs = N_HITS + N_ADDED
    match = rng.random((N_QUERIES, n_docs, 2)) < 0.6
    match[~match.any(axis=2), 0] = True
    match[:, N_HITS:] = False
    scores = np.where(match, rng.gamma(4.0, 1.0, match.shape), np.nan)
    popularity = rng.normal(size=(N_QUERIES, n_docs))
    wanted = np.nan_to_num(scores).sum(axis=2) + popularity + rng.normal(size=popularity.shape)
    y = wanted > np.sort(wanted[:, :N_HITS], axis=1)[:, -3:-2]
    y[:, N_HITS:] = True
    engine = np.where(match.any(axis=2), np.nansum(scores, axis=2), np.nan)
    columns = [scores[..., 0], scores[..., 1], popularity, *([engine] if combined else [])]
    X = np.where(np.isnan(columns), missing, columns).transpose(1, 2, 0)
    kept = n_docs if added else N_HITS
    names = ["title", "body", "popularity", *(["engine"] if combined else [])]
    return QuerySet.from_arrays(
        X[:, :kept].reshape(-1, len(names)), y[:, :kept].ravel(), group=[kept] * N_QUERIES, feature_names=names
    )


@pytest.mark.parametrize("missing", [0.0, np.nan])
@pytest.mark.parametrize("combined", [True, False])
def test_rows_added_to_the_hits_are_found_and_dropped(missing: float, combined: bool):
    leaking, clean = (engine_log(added=added, missing=missing, combined=combined) for added in (True, False))
    found = find_added_rows(leaking)
    assert found is not None
    assert found.sign == ("'engine' empty" if combined else "at least 2 features empty")
    assert (found.relevant, found.others) == (0.5, 0.0)
    dropped = found.drop(leaking)
    np.testing.assert_array_equal(dropped.X, clean.X)
    np.testing.assert_array_equal(dropped.grades, clean.grades)
    assert find_added_rows(clean) is None


def test_dropping_added_rows_keeps_the_weights_of_the_others():
    leaking = engine_log(added=True)
    weights = np.linspace(0.1, 1.0, leaking.n_rows, dtype=np.float32)
    found = find_added_rows(leaking)
    assert found is not None
    dropped = found.drop(leaking.replace(sample_weight=weights))
    assert dropped.sample_weight is not None
    np.testing.assert_array_equal(dropped.sample_weight, weights[~found.rows(leaking)])


def test_added_rows_look_like_a_perfect_model():
    leaking, clean = engine_log(added=True), engine_log(added=False)
    only_added = np.isin(np.arange(leaking.n_rows) % (N_HITS + N_ADDED), range(N_HITS, N_HITS + N_ADDED))
    scores = SingleRanker("lambdamart").fit(leaking).predict(leaking)
    assert scores[only_added].min() > np.median(scores)  # no engine score counts as a good one
    assert find_added_rows(clean) is None


def test_lower_is_better_is_no_leak():
    """An exact match has distance 0, and that is why it is relevant."""
    rng = np.random.default_rng(0)
    distance = np.where(rng.random((N_QUERIES, 20)) < 0.2, 0.0, rng.gamma(4.0, 1.0, (N_QUERIES, 20)))
    y = distance + 0.5 * rng.normal(size=distance.shape) < 1.5
    y[distance == 0] = True
    queries = QuerySet.from_arrays(distance.reshape(-1, 1), y.ravel(), group=[20] * N_QUERIES)
    assert find_added_rows(queries) is None


def test_generated_worlds_are_clean():
    assert find_added_rows(make_two_camps(n_queries=60, seed=0)) is None


def test_studies_refuse_features_that_give_the_grade_away():
    leaking = engine_log(added=True)
    reason = "50% of the relevant candidates have 'engine' empty, and 0.0% of the others"
    for leaks in ("refuse", "drop"):
        with pytest.raises(LeakError, match=reason):
            headroom(leaking, leaks=leaks)
    with pytest.raises(LeakError, match=reason):
        run_experiment(["single"], leaking, folds=3)
    kept = run_experiment(["single"], leaking, folds=3, leaks="warn")
    assert all(report.added is not None for report in kept.leaks)
    run_experiment(["single"], engine_log(added=False), folds=3)


def test_train_refuses_or_drops_added_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    leaking = engine_log(added=True)
    write_parquet(leaking, "leaking.parquet")
    write_parquet(leaking.replace(sample_weight=np.linspace(0.1, 1.0, leaking.n_rows)), "weighted.parquet")
    write_parquet(engine_log(added=False), "clean.parquet")

    def train(data: str, *options: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["train", data, "--model", "model", "--ranker", "single", *options])
        return done.exit_code, " ".join(done.stderr.split())

    code, said = train("leaking.parquet")
    assert code == 2
    assert "kinrank train --leaks drop" in said
    assert not Path("model").exists()
    for data in ("leaking.parquet", "weighted.parquet"):
        code, said = train(data, "--leaks", "drop")
        assert code == 0
        assert "dropped 120 of 840 candidates" in said
    assert train("leaking.parquet", "--leaks", "warn")[0] == 0
    assert train("clean.parquet")[0] == 0
