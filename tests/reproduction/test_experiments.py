"""Pieces of experiments with a known answer."""

from __future__ import annotations

import pytest

from reproduction.experiments import knn_cost


def test_exponent_is_the_slope_without_the_smallest_size():
    assert knn_cost.exponent({"1": 99.0, "10": 3e-3, "100": 3e-1, "1000": 3e1}) == pytest.approx(2.0)


def test_windows_on_a_ring_overlap_most_with_the_window_itself():
    steps = knn_cost.steps(100, 10)
    assert steps["offline model"]() == 50
    assert len(steps["k nearest"]()[1][0]) == 10


def test_paper_estimates_k_global_fits_if_training_is_linear():
    assert knn_cost.estimate(["50", "400"], 1.0) == {"50": 50.0, "400": 400.0}
    assert knn_cost.estimate(["500"], 2.0) == {"500": 250.0}
