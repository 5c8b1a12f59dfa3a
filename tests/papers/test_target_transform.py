"""Step (b) of aTVT: limits, degenerate queries and optimality."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kinrank.errors import ParameterError
from kinrank.papers.atvt import TargetTransform

PENALTIES = st.sampled_from([0.0, 0.01, 0.3, 1.0, 10.0, 1e4, np.inf])


def value(transform: TargetTransform, alpha: float, beta: float, h: NDArray, y: NDArray) -> float:
    """Return the objective of one query."""
    cost = float(np.sum((y - beta - alpha * h) ** 2))
    if beta:
        cost += transform.beta_penalty * abs(beta) ** transform.p
    if alpha != 1.0:
        cost += transform.alpha_penalty * abs(alpha - 1.0) ** transform.p
    return cost


@st.composite
def problems(draw: st.DrawFn) -> tuple[NDArray, NDArray, NDArray]:
    """Draw scores that agree with the grades, contradict them or are constant, at several scales."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    y = rng.integers(0, draw(st.integers(1, 5)), offsets[-1]).astype(float)
    h = draw(st.sampled_from([-1.0, 0.0, 0.4, 1.0])) * y + draw(st.sampled_from([0.0, 0.5])) * rng.standard_normal(
        len(y)
    )
    return draw(st.sampled_from([0.1, 1.0, 30.0])) * h + draw(st.sampled_from([0.0, 2.0])), y, offsets


@pytest.mark.parametrize("p", [1, 2])
@given(problem=problems(), alpha_penalty=PENALTIES, beta_penalty=PENALTIES)
def test_solution_is_a_local_minimum(p: int, problem: tuple, alpha_penalty: float, beta_penalty: float) -> None:
    # The problem is convex, so a local minimum is global.
    scores, grades, offsets = problem
    transform = TargetTransform(p=p, alpha_penalty=alpha_penalty, beta_penalty=beta_penalty)
    alpha, beta = transform.solve(scores, grades, offsets)
    assert np.all(alpha >= transform.min_alpha)
    for query in range(len(offsets) - 1):
        h, y = scores[offsets[query] : offsets[query + 1]], grades[offsets[query] : offsets[query + 1]]
        best = value(transform, alpha[query], beta[query], h, y)
        for step in (1e-4, 1e-2, 1.0):
            for angle in np.linspace(0, 2 * np.pi, 12, endpoint=False):
                other = (
                    max(alpha[query] + step * np.cos(angle), transform.min_alpha),
                    beta[query] + step * np.sin(angle),
                )
                assert best <= value(transform, *other, h, y) + 1e-9 * (1 + best)


@pytest.mark.parametrize("p", [1, 2])
def test_infinite_penalties_fix_alpha_and_beta(p: int) -> None:
    scores, grades, offsets = np.array([0.3, 0.1, 2.0]), np.array([2.0, 0.0, 5.0]), np.array([0, 3])
    none = TargetTransform(p=p, alpha_penalty=np.inf, beta_penalty=np.inf)
    alpha, beta = none.solve(scores, grades, offsets)
    assert (alpha.tolist(), beta.tolist()) == ([1.0], [0.0])
    assert none.penalty(alpha, beta) == 0.0
    alpha, beta = TargetTransform(p=p, alpha_penalty=np.inf, beta_penalty=0.0).solve(scores, grades, offsets)
    assert alpha.tolist() == [1.0]
    assert beta[0] == pytest.approx(np.mean(grades - scores))
    alpha, beta = TargetTransform(p=p, alpha_penalty=0.0, beta_penalty=np.inf).solve(scores, grades, offsets)
    assert beta.tolist() == [0.0]
    assert alpha[0] == pytest.approx(scores @ grades / (scores @ scores))


@pytest.mark.parametrize("p", [1, 2])
def test_growing_penalties_approach_the_infinite_ones(p: int) -> None:
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 3, 40).astype(float)
    scores, offsets = 0.4 * grades + rng.standard_normal(40), np.arange(0, 41, 10)
    moved = []
    for penalty in (0.0, 1.0, 10.0, 100.0, 1e9):
        alpha, beta = TargetTransform(p=p, alpha_penalty=penalty, beta_penalty=penalty).solve(scores, grades, offsets)
        moved.append(np.sum(np.abs(alpha - 1.0) ** p + np.abs(beta) ** p))
    assert np.all(np.diff(moved) <= 1e-12)
    assert moved[0] > 0.1
    assert moved[-1] < 1e-6


def test_absolute_penalty_keeps_many_queries_at_the_identity() -> None:
    rng = np.random.default_rng(0)
    grades = rng.integers(0, 3, 400).astype(float)
    scores, offsets = 0.8 * grades + 0.5 * rng.standard_normal(400), np.arange(0, 401, 10)
    alpha, beta = TargetTransform(p=1, alpha_penalty=3.0, beta_penalty=3.0).solve(scores, grades, offsets)
    assert 0.2 < np.mean(alpha == 1.0) < 1.0
    assert 0.2 < np.mean(beta == 0.0) < 1.0


@pytest.mark.parametrize("p", [1, 2])
def test_scores_opposed_to_grades_give_the_smallest_alpha(p: int) -> None:
    scores, grades = np.array([2.0, 1.0, 0.0]), np.array([0.0, 1.0, 2.0])
    free = TargetTransform(p=p, alpha_penalty=0.0, beta_penalty=0.0, min_alpha=0.2)
    alpha, beta = free.solve(scores, grades, np.array([0, 3]))
    assert alpha.tolist() == [0.2]
    assert beta[0] == pytest.approx(0.8)  # solved for that α


@pytest.mark.parametrize("p", [1, 2])
def test_constant_scores_keep_alpha_at_1(p: int) -> None:
    scores, grades = np.full(7, 0.1), np.arange(7.0)
    alpha, beta = TargetTransform(p=p, alpha_penalty=0.0, beta_penalty=0.0).solve(scores, grades, np.array([0, 7]))
    assert alpha.tolist() == [1.0]
    assert beta[0] == pytest.approx(2.9)


@pytest.mark.parametrize("p", [1, 2])
def test_queries_are_solved_independently(p: int) -> None:
    rng = np.random.default_rng(1)
    grades, scores, offsets = rng.integers(0, 3, 30).astype(float), rng.standard_normal(30), np.array([0, 4, 20, 30])
    transform = TargetTransform(p=p, alpha_penalty=1.0, beta_penalty=0.5)
    alpha, beta = transform.solve(scores, grades, offsets)
    for query in range(3):
        rows = slice(offsets[query], offsets[query + 1])
        own = transform.solve(scores[rows], grades[rows], np.array([0, rows.stop - rows.start]))
        np.testing.assert_allclose([alpha[query], beta[query]], np.ravel(own), atol=1e-12)


def test_penalty_values() -> None:
    alpha, beta = np.array([1.0, 3.0]), np.array([-2.0, 0.0])
    assert TargetTransform(p=2, alpha_penalty=10.0, beta_penalty=0.5).penalty(alpha, beta) == 42.0
    assert TargetTransform(p=1, alpha_penalty=10.0, beta_penalty=0.5).penalty(alpha, beta) == 21.0


def test_bad_settings_raise() -> None:
    with pytest.raises(ParameterError, match="p must be 1 or 2, got 3"):
        TargetTransform(p=3)
    with pytest.raises(ParameterError, match=r"beta_penalty must be 0 or more .*, got -1"):
        TargetTransform(beta_penalty=-1.0)
    with pytest.raises(ParameterError, match=r"alpha_penalty must be 0 or more .*, got nan"):
        TargetTransform(alpha_penalty=float("nan"))
    with pytest.raises(ParameterError, match="min_alpha must be above 0 and at most 1, got 0"):
        TargetTransform(min_alpha=0.0)
