"""Turn the scores of a ranker into the probability that someone who looks at a document chooses it."""

from __future__ import annotations

from typing import NamedTuple, Self

import numba
import numpy as np
from scipy.optimize import minimize

from kinrank.arrays import Float64, Int64, State
from kinrank.describe.blocks import standardize
from kinrank.memory.evidence import Totals

_KNOTS = 9
_MOST_ROWS = 300_000
_LEAST_SLOPE = 1e-6  # of the logarithm per standard deviation, so that different scores never tie
_LOWEST = -12.0  # logarithm of the lowest probability


class Curve(NamedTuple):
    """A function that does not decrease, linear between knots and constant outside."""

    knots: Float64
    heights: Float64


class Calibration:
    """P(choice | look) as a product of two increasing functions: of the score, and of its standing in the query.

    A score compares documents of different queries as far as the ranker's scores do; the standing, in standard
    deviations from the mean of the query, compares documents of one query. Choices are fitted as Poisson counts with
    the looks as exposure. Within a query the order of the scores is kept.

    Attributes
    ----------
    level_ : float
        The logarithm of the probability at the lowest knots.
    curves_ : pair of Curve
        The logarithms of both functions.
    spread_ : float
        Standard deviation of the scores.
    rate_ : float
        Choices per look.
    """

    def fit(self, scores: Float64, offsets: Int64, seen: Totals) -> Self:
        """Fit to the looks and choices of candidates whose queries the ranker has not seen.

        Parameters
        ----------
        scores
            Scores of the candidates.
        offsets
            Query ``i`` owns candidates ``offsets[i]:offsets[i + 1]``.
        seen
            Their looks and choices; at least one of both.
        """
        rows = np.flatnonzero(seen.looks > 0)
        if len(rows) > _MOST_ROWS:
            rows = rows[np.linspace(0, len(rows) - 1, _MOST_ROWS).astype(np.int64)]
        looks, choices = seen.looks[rows], seen.choices[rows]
        self.rate_ = float(choices.sum() / looks.sum())
        self.spread_ = float(scores.std()) or 1.0
        columns = [scores[rows], standing(scores, offsets)[rows]]
        knots = [np.unique(np.quantile(column, np.linspace(0, 1, _KNOTS))) for column in columns]
        ramps = np.column_stack([_ramps(column, at) for column, at in zip(columns, knots, strict=True)])
        first, steps = _fit_steps(ramps, looks, choices, self.rate_)
        parts = np.split(steps, [len(knots[0]) - 1])
        self.level_ = first
        self.curves_ = tuple(Curve(at, np.r_[0.0, np.cumsum(part)]) for at, part in zip(knots, parts, strict=True))
        return self

    def predict(self, scores: Float64, offsets: Int64) -> Float64:
        """Return the probability of a choice for each candidate."""
        by_score, by_standing = self.curves_
        heights: Float64 = _heights(
            scores, standing(scores, offsets), *by_score, *by_standing, self.level_, self.spread_
        )
        return np.exp(heights)

    def get_state(self) -> State:
        """Return everything learned."""
        numbers = {"numbers": np.array([self.level_, self.spread_, self.rate_])}
        return numbers | {
            f"{name}{i}": array for i, curve in enumerate(self.curves_) for name, array in curve._asdict().items()
        }

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.level_, self.spread_, self.rate_ = state["numbers"].tolist()
        self.curves_ = tuple(Curve(np.asarray(state[f"knots{i}"]), np.asarray(state[f"heights{i}"])) for i in (0, 1))
        return self


def standing(scores: Float64, offsets: Int64) -> Float64:
    """Return each score in standard deviations from the mean of its query."""
    return standardize(scores[:, None], offsets)[:, 0]


@numba.njit(cache=True, nogil=True)
def _heights(scores, standings, knots, heights, knots_of_standing, heights_of_standing, level, spread):  # type: ignore[no-untyped-def]
    """Return the logarithm of the probability of each candidate."""
    found = np.empty(len(scores))
    for i in range(len(scores)):
        height = level + _height_at(scores[i], knots, heights)
        height += _height_at(standings[i], knots_of_standing, heights_of_standing)
        found[i] = max(height, _LOWEST) + _LEAST_SLOPE * scores[i] / spread
    return found


@numba.njit(cache=True, nogil=True)
def _height_at(value, knots, heights):  # type: ignore[no-untyped-def]
    """Return the height of a `Curve` at a value, as `numpy.interp` does."""
    last = len(knots) - 1
    if value >= knots[last]:
        return heights[last]
    if value < knots[0]:
        return heights[0]
    place = 0
    while knots[place + 1] <= value:
        place += 1
    slope = (heights[place + 1] - heights[place]) / (knots[place + 1] - knots[place])
    return slope * (value - knots[place]) + heights[place]


def _ramps(values: Float64, knots: Float64) -> Float64:
    """Return a column per interval of knots that grows from 0 to 1 in it."""
    return np.clip((values[:, None] - knots[:-1]) / np.diff(knots), 0.0, 1.0)


def _fit_steps(ramps: Float64, looks: Float64, choices: Float64, rate: float) -> tuple[float, Float64]:
    """Maximize the Poisson likelihood over a level and over steps that are not negative."""
    total = max(float(choices.sum()), 1.0)

    def loss(values: Float64) -> tuple[float, Float64]:
        height = np.clip(values[0] + ramps @ values[1:], -50.0, 20.0)
        expected = looks * np.exp(height)
        slope = expected - choices
        return float((expected - choices * height).sum() / total), np.r_[slope.sum(), slope @ ramps] / total

    start = np.r_[np.log(rate) - 1.0, np.full(ramps.shape[1], 2.0 / max(ramps.shape[1], 1))]
    bounds = [(None, None), *[(0.0, None)] * ramps.shape[1]]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
    return float(found[0]), found[1:]
