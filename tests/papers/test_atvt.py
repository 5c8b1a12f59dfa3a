from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import kinrank
from kinrank import QuerySet
from kinrank.checks import RankerCheck, linear_queries, ranker_checks
from kinrank.errors import DataError, ParameterError
from kinrank.learn._prepare import Preparer
from kinrank.measure import NDCG
from kinrank.papers.atvt import ATVTRanker, BoostedTrees, KernelRidge, Regressor

FEW_TREES = BoostedTrees(n_trees=40, n_threads=1)
MAKERS = {
    "kernel ridge": partial(ATVTRanker, "kernel-ridge"),
    "absolute": partial(ATVTRanker, "kernel-ridge", p=1, alpha_penalty=1.0, beta_penalty=1.0),
    "unweighted": partial(ATVTRanker, "kernel-ridge", weighted=False),
    "composed": partial(ATVTRanker, "kernel-ridge", weighted=False, composed=True),
    "infinite": partial(ATVTRanker, "kernel-ridge", alpha_penalty=np.inf, beta_penalty=np.inf),
    "cross-validated": partial(ATVTRanker, "kernel-ridge", beta_penalty="cv", n_rounds=1),
}


def own_scales(n_queries: int = 60, seed: int = 0) -> tuple[QuerySet, QuerySet]:
    """Return queries whose grades have a scale per query, and the same queries graded on one scale."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n_queries, 12, 4))
    ideal = X @ np.array([1.0, -1.0, 0.5, 0.0])
    width, level = rng.uniform(0.2, 2.0, (n_queries, 1)), rng.uniform(-3.0, 3.0, (n_queries, 1))
    sizes = np.full(n_queries, 12)
    judged = QuerySet.from_arrays(X.reshape(-1, 4), (width * ideal + level).ravel(), group=sizes)
    return judged, judged.replace(y=np.digitize(ideal.ravel(), [0.0, 1.0, 2.0]).astype(np.float32))


@pytest.mark.parametrize("check", ranker_checks(), ids=lambda check: check.__name__)
@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_contract(make: partial[ATVTRanker], check: RankerCheck) -> None:
    check(make)


@pytest.mark.filterwarnings("ignore:no qid= and no group=:UserWarning")
@parametrize_with_checks(
    [ATVTRanker("kernel-ridge")],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": "weights count judgments: features are scaled without them"
    },
)
def test_estimator_checks(estimator: ATVTRanker, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("weighted", [True, False])
def test_infinite_penalties_equal_plain_trees(p: Any, weighted: bool) -> None:
    queries = linear_queries()
    plain = BoostedTrees(n_trees=40, n_threads=1).fit(queries.X, queries.grades.astype(float))
    ranker = ATVTRanker(FEW_TREES, p=p, alpha_penalty=np.inf, beta_penalty=np.inf, weighted=weighted).fit(queries)
    np.testing.assert_array_equal(ranker.predict(queries), plain.predict(queries.X))
    assert set(ranker.alpha_) == {1.0}
    assert set(ranker.beta_) == {0.0}


@pytest.mark.parametrize("settings", [{"alpha_penalty": np.inf, "beta_penalty": np.inf}, {"n_rounds": 0}])
def test_infinite_penalties_or_no_rounds_equal_plain_kernel_ridge(settings: dict[str, Any]) -> None:
    queries = linear_queries()
    X = Preparer().fit(queries).transform(queries.X)
    plain = KernelRidge().fit(X, queries.grades.astype(float))
    ranker = ATVTRanker("kernel-ridge", **settings).fit(queries)
    np.testing.assert_array_equal(ranker.predict(queries), plain.predict(X))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("penalties", [(0.01, 0.01), (1.0, 10.0), (10.0, 1.0), (100.0, 0.1)])
@pytest.mark.parametrize("n_landmarks", [50, 1000])
def test_objective_never_increases_if_both_steps_are_exact(p: Any, penalties: Any, n_landmarks: int) -> None:
    queries, _ = own_scales(25)
    ranker = ATVTRanker(
        KernelRidge(n_landmarks=n_landmarks),
        p=p,
        alpha_penalty=penalties[0],
        beta_penalty=penalties[1],
        n_rounds=12,
        tol=0.0,
    ).fit(queries)
    assert len(ranker.objective_) == 25
    assert np.all(np.diff(ranker.objective_) <= 1e-9 * ranker.objective_[0])
    assert ranker.objective_[-1] < 0.9 * ranker.objective_[0]


@pytest.mark.parametrize("weighted", [True, False])
def test_line_step_never_increases_the_objective_of_trees(weighted: bool) -> None:
    ranker = ATVTRanker(FEW_TREES, weighted=weighted, n_rounds=3, tol=0.0).fit(own_scales()[0])
    after_h, after_line = ranker.objective_[:-1:2], ranker.objective_[1::2]
    assert len(after_line) == 3
    assert np.all(after_line <= after_h)


@pytest.mark.parametrize("learner", [FEW_TREES, KernelRidge()], ids=["trees", "kernel ridge"])
def test_different_scales_of_grades_do_not_mislead(learner: Regressor) -> None:
    # Grades differ between queries only in level and spread. That misleads the plain learner.
    queries, _ = own_scales()
    _, test = own_scales(seed=1)
    free = {"alpha_penalty": 1.0, "beta_penalty": 0.01, "n_rounds": 10}
    plain = ATVTRanker(learner, n_rounds=0).fit(queries).predict(test)
    better = ATVTRanker(learner, **free).fit(queries).predict(test)
    lost = [1.0 - (NDCG @ 10).mean(scores, test.grades, test.offsets) for scores in (plain, better)]
    assert lost[1] < 0.5 * lost[0]


def test_beta_recovers_the_level_of_each_query() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 15, 2))
    level = rng.uniform(-3.0, 3.0, 40)
    grades = X[..., 0] + level[:, None]
    queries = QuerySet.from_arrays(X.reshape(-1, 2), grades.ravel(), group=np.full(40, 15))
    ranker = ATVTRanker("kernel-ridge", alpha_penalty=10.0, beta_penalty=0.01, n_rounds=20).fit(queries)
    assert np.corrcoef(ranker.beta_, level)[0, 1] > 0.98
    assert np.all(np.abs(ranker.alpha_ - 1.0) < 0.5)


def test_fit_stops_when_nothing_changes() -> None:
    queries = linear_queries()
    patient = ATVTRanker("kernel-ridge", n_rounds=200, tol=1e-4).fit(queries)
    assert 1 < patient.n_rounds_ < 200
    assert ATVTRanker("kernel-ridge", n_rounds=200, tol=10.0).fit(queries).n_rounds_ == 1
    assert ATVTRanker("kernel-ridge", n_rounds=7, tol=0.0).fit(queries).n_rounds_ == 7


def test_weighting_matters_if_alpha_changes() -> None:
    queries, _ = own_scales()
    weighted, plain = (ATVTRanker("kernel-ridge", weighted=w).fit(queries) for w in (True, False))
    assert weighted.alpha_.std() > 0.1
    assert not np.allclose(weighted.predict(queries), plain.predict(queries), atol=1e-3)


def test_cross_validation_chooses_the_best_setting() -> None:
    queries = linear_queries()
    ranker = ATVTRanker("kernel-ridge", alpha_penalty="cv", beta_penalty=3.0, n_rounds=1).fit(queries)
    assert ranker.cv_scores_[:, 0].tolist() == [np.inf, 100.0, 10.0, 1.0]
    assert set(ranker.cv_scores_[:, 1]) == {3.0}
    assert ranker.alpha_penalty_ == ranker.cv_scores_[np.argmax(ranker.cv_scores_[:, 2]), 0]
    assert ranker.beta_penalty_ == 3.0
    chosen = ATVTRanker("kernel-ridge", alpha_penalty=ranker.alpha_penalty_, beta_penalty=3.0, n_rounds=1).fit(queries)
    np.testing.assert_array_equal(ranker.predict(queries), chosen.predict(queries))


def test_cross_validation_chooses_a_finite_penalty_if_it_helps() -> None:
    queries, _ = own_scales(30)
    raised = queries.replace(y=queries.grades - queries.grades.min())
    ranker = ATVTRanker("kernel-ridge", alpha_penalty=np.inf, beta_penalty="cv").fit(raised)
    assert ranker.beta_penalty_ < np.inf


def test_missing_features_are_read_by_trees_or_filled() -> None:
    queries = linear_queries()
    X = queries.X.copy()
    X[::3, 1] = np.nan
    holes = queries.replace(X=X)
    assert np.isfinite(ATVTRanker(FEW_TREES).fit(holes).predict(holes)).all()
    with pytest.raises(DataError, match=r"'f2' is missing \(NaN\) in candidate 1 of query 'q0'"):
        ATVTRanker("kernel-ridge", missing="error").fit(holes)
    assert np.isfinite(ATVTRanker("kernel-ridge").fit(holes).predict(holes)).all()


@pytest.mark.parametrize("name", ["lightgbm", "kernel-ridge"])
def test_fitted_attributes_are_saved(name: str, tmp_path: Path) -> None:
    ranker = ATVTRanker(name, alpha_penalty=np.inf, beta_penalty="cv", n_rounds=1).fit(linear_queries())
    ranker.save(tmp_path / "model")
    twin = kinrank.load(tmp_path / "model")
    assert isinstance(twin, ATVTRanker)
    for found in ("alpha_", "beta_", "objective_", "cv_scores_", "alpha_penalty_", "beta_penalty_", "n_rounds_"):
        np.testing.assert_array_equal(getattr(twin, found), getattr(ranker, found))
    np.testing.assert_array_equal(twin.predict(linear_queries()), ranker.predict(linear_queries()))


def test_invalid_settings_raise() -> None:
    queries = linear_queries(5)
    with pytest.raises(ParameterError, match="p must be 1 or 2, got 3"):
        ATVTRanker("kernel-ridge", p=3).fit(queries)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="alpha_penalty must be a number or 'cv', got 'auto'"):
        ATVTRanker("kernel-ridge", alpha_penalty="auto").fit(queries)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="n_rounds must be 0 or more, got -1"):
        ATVTRanker("kernel-ridge", n_rounds=-1).fit(queries)
    with pytest.raises(ParameterError, match="unknown regressor 'svm': choose one of 'lightgbm', 'kernel-ridge'"):
        ATVTRanker("svm").fit(queries)
    with pytest.raises(ParameterError, match="n_landmarks must be at least 1, got 0"):
        ATVTRanker(KernelRidge(n_landmarks=0)).fit(queries)
    with pytest.raises(ParameterError, match="gamma must be positive, got 0"):
        ATVTRanker(KernelRidge(gamma=0)).fit(queries)
