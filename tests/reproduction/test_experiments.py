"""Pieces of experiments with a known answer."""

from __future__ import annotations

import numpy as np
import pytest

from kinrank import ATVTRanker, QuerySet
from reproduction.experiments import knn_cost
from reproduction.experiments.atvt_classes import by_class, increasing_targets
from reproduction.experiments.atvt_convergence import gradient
from reproduction.experiments.cluster_aggregation import cps_weights, feature_ranks, stagewise_loss


def test_exponent_is_the_slope_without_the_smallest_size():
    assert knn_cost.exponent({"1": 99.0, "10": 3e-3, "100": 3e-1, "1000": 3e1}) == pytest.approx(2.0)


def test_windows_on_a_ring_overlap_most_with_the_window_itself():
    steps = knn_cost.steps(100, 10)
    assert steps["offline model"]() == 50
    assert len(steps["k nearest"]()[1][0]) == 10


def test_paper_estimates_k_global_fits_if_training_is_linear():
    assert knn_cost.estimate(["50", "400"], 1.0) == {"50": 50.0, "400": 400.0}
    assert knn_cost.estimate(["500"], 2.0) == {"500": 250.0}


def test_gradient_in_alpha_and_beta_is_that_of_the_objective():
    rng = np.random.default_rng(0)
    train = QuerySet.from_arrays(rng.standard_normal((20, 2)), rng.integers(0, 3, 20), group=[5] * 4)
    ranker = ATVTRanker("kernel-ridge", alpha_penalty=2.0, beta_penalty=3.0, n_rounds=1, tol=0.0).fit(train)
    h, y, query = ranker.predict(train), train.grades.astype(np.float64), train.query_of_row

    def objective(line):
        alpha, beta = line[:4], line[4:]
        residual = y - beta[query] - alpha[query] * h
        return residual @ residual + 2.0 * np.sum((alpha - 1.0) ** 2) + 3.0 * beta @ beta

    line = np.concatenate([ranker.alpha_, ranker.beta_])
    slopes = [(objective(line + step) - objective(line - step)) / 2e-6 for step in 1e-6 * np.eye(8)]
    assert gradient(ranker, train) == pytest.approx(np.linalg.norm(slopes), rel=1e-4)


def test_targets_increase_with_the_grade_and_a_large_penalty_keeps_the_grades():
    rng = np.random.default_rng(0)
    h, grades, owner = rng.standard_normal(60), rng.integers(0, 4, 60).astype(np.float64), np.repeat(np.arange(3), 20)
    targets = increasing_targets(h, grades, owner, 1.0)
    for each in range(3):
        order = np.argsort(grades[owner == each], kind="stable")
        assert np.all(np.diff(targets[owner == each][order]) >= 0.0)
    np.testing.assert_allclose(increasing_targets(h, grades, owner, 1e9), grades, atol=1e-6)


def test_line_of_a_class_is_shared_by_its_queries():
    rng = np.random.default_rng(0)
    queries = QuerySet.from_arrays(rng.standard_normal((20, 2)), rng.integers(0, 3, 20), group=[5] * 4)
    merged = by_class(queries, ["news", "local", "news", "local"])
    assert sorted(zip(merged.qid, merged.sizes, strict=True)) == [("local", 10), ("news", 10)]
    assert merged.feature_names == queries.feature_names


def test_stagewise_loss_is_that_of_choosing_documents_one_by_one():
    cost, offsets = np.array([0.3, -0.2, 0.1, 0.5, 0.0]), np.array([0, 3, 5])
    expected = -np.log(np.exp(-3 * 0.3) / np.exp(-3 * cost[:3]).sum())
    expected -= np.log(np.exp(-2 * -0.2) / np.exp(-2 * cost[1:3]).sum())
    expected -= np.log(np.exp(-2 * 0.5) / np.exp(-2 * cost[3:]).sum())
    value, slope = stagewise_loss(cost, offsets, np.array([2, 1]))
    assert value == pytest.approx(expected)
    steps = 1e-6 * np.eye(5)
    slopes = [(stagewise_loss(cost + step, offsets, np.array([2, 1]))[0] - value) / 1e-6 for step in steps]
    np.testing.assert_allclose(slope, slopes, atol=1e-4)


def test_cps_trusts_the_ranking_that_agrees_with_the_grades():
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 3, 200).astype(np.float32)
    X = np.column_stack([grades + 0.3 * rng.standard_normal(200), rng.standard_normal(200)])
    queries = QuerySet.from_arrays(X, grades, group=[10] * 20)
    assert feature_ranks(queries).reshape(20, 10, 2).min(axis=1).tolist() == [[1.0, 1.0]] * 20
    informed, random = cps_weights(queries)
    assert informed > 0.0
    assert informed > 5.0 * abs(random)
