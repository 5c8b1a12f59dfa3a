"""The expected rate of choices of a document: from the score of a ranker, then from what people chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple, Self

import numba
import numpy as np
from scipy.optimize import minimize

from kinrank.arrays import Float64, Int64, State
from kinrank.kin.blocks import standardize
from kinrank.memory.evidence import Totals

_KNOTS = 9
_MOST_ROWS = 300_000
_LEAST_SLOPE = 1e-6  # of the logarithm per standard deviation, so that different scores never tie
_HIGH = 0.9  # from which a fitted rate bends, so that it stays below 1
_LOWEST = -12.0  # logarithm of the lowest probability

_STRENGTHS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0)
_EXPONENTS = (0.0, 0.5, 1.0)
_HALF_LIVES = (60.0, 30.0, 14.0, 7.0)
_LEAST_CHOICES = 100.0  # of later days, below which nothing is chosen on them
_MOST_PRIOR = 40.0  # looks that a prediction counts as at most, however low it is
_FEW_LOOKS = 0.5  # below which a document counts as not looked at
_DOUBT = 50.0  # choices as expected, by which the discount of documents without looks is pulled to 1
_SURE = 2.0  # standard errors by which a setting must be better to replace a simpler one
_TINY = 1e-9
_EDGE = 1e-4  # a rate of choices is that far from 0 and 1
_NOBODY = Totals.zeros(0)


# --- from scores to rates of choices ----------------------------------------------------------------------------------


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
        """Fit to the looks and choices of candidates whose queries the ranker has not seen."""
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
        """Return the probability of a choice for each candidate; near 1 it rises less, and stays below."""
        by_score, by_standing = self.curves_
        heights: Float64 = _heights(
            scores, standing(scores, offsets), *by_score, *by_standing, self.level_, self.spread_
        )
        p = np.exp(heights)
        return np.where(p < _HIGH, p, 1.0 - (1.0 - _HIGH) * np.exp(np.minimum(_HIGH - p, 0.0) / (1.0 - _HIGH)))

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


# --- and from what people chose ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Posterior:
    """How predictions and evidence are combined."""

    strength: float = 5.0
    """κ: the number of looks that a prediction of average height counts as."""
    exponent: float = 0.5
    """How this number falls with the prediction: κ (rate / p) ** exponent. Documents that the ranker expects to be
    chosen differ more from its prediction than those that it expects to be ignored.
    """
    rate: float = 0.3
    """Choices per look in the evidence."""
    half_life: float | None = None
    """Days after which evidence counts half; None if it does not age."""
    unseen: float = 1.0
    """What the prediction for a document that nobody looked at is multiplied by. Those that were shown were shown for a
    reason that the ranker may not know.
    """

    def mean(self, p: Float64, own: Totals) -> Float64:
        """Return p + (C - L p) / (κ + L).

        Looks are expected ones; who chose has looked, so L is C at least, and one choice far down is one look.

        Parameters
        ----------
        p
            The prediction of the ranker for each document, as a probability of a choice.
        own
            Looks L and choices C of the query.
        """
        return self._mean_and_looks(p, own)[0]

    def draw(self, p: Float64, own: Totals, rng: np.random.Generator) -> Float64:
        """Return rates of choices drawn from what they may be: Beta with the mean and the total of looks of `mean`."""
        mean, looks = self._mean_and_looks(p, own)
        mean = np.clip(mean, _EDGE, 1 - _EDGE)
        drawn: Float64 = rng.beta(mean * looks, (1 - mean) * looks)
        return drawn

    def _mean_and_looks(self, p: Float64, own: Totals) -> tuple[Float64, Float64]:
        """Return the mean, and κ + L."""
        few = own.few or _NOBODY
        found: tuple[Float64, Float64] = _combine(p, *own, *few, self.strength, self.exponent, self.rate, self.unseen)
        return found

    def to_array(self) -> Float64:
        """Return the numbers as an array; NaN stands for None."""
        return np.array([np.nan if value is None else value for value in asdict(self).values()])

    @classmethod
    def from_array(cls, values: Float64) -> Posterior:
        """Restore from `to_array`."""
        numbers: list[Any] = [None if np.isnan(value) else value for value in values.tolist()]
        return cls(**dict(zip((each.name for each in fields(cls)), numbers, strict=True)))


@dataclass(frozen=True, eq=False)
class LaterClicks:
    """Predictions and early evidence of some documents, and their later clicks, to choose settings on."""

    p: Float64
    """The prediction for each document, calibrated on the early evidence."""
    query: Int64
    """The query of each document."""
    early: Callable[[float | None], Totals]
    """Returns the early evidence for a half-life."""
    late: Totals
    """Later looks and choices."""

    @property
    def enough(self) -> bool:
        """Whether there are enough later choices to tell settings apart."""
        return bool(self.late.choices.sum() >= _LEAST_CHOICES and self.early(None).looks.any())

    @property
    def unseen(self) -> float:
        """Later choices of documents without early looks, relative to those predicted; 1 at most."""
        rows = self.early(None).looks < _FEW_LOOKS
        expected = float(self.late.looks[rows] @ self.p[rows])
        return min((float(self.late.choices[rows].sum()) + _DOUBT) / (expected + _DOUBT), 1.0)

    def likelihood(self, posterior: Posterior) -> Float64:
        """Return the log likelihood of the later choices of each query, as Poisson counts."""
        mean = np.maximum(posterior.mean(self.p, self.early(posterior.half_life)), 1e-4)
        terms = self.late.choices * np.log(mean) - self.late.looks * mean
        return np.bincount(self.query, weights=terms).astype(np.float64)

    def best(self, tried: Iterable[Posterior]) -> Posterior:
        """Return the settings under which the later choices are most likely."""
        return max(tried, key=lambda each: float(self.likelihood(each).sum()))


def choose_posterior(clicks: LaterClicks, rate: float, n_days: int) -> Posterior:
    """Choose the strength of predictions and the half-life of evidence on later clicks.

    Half-lives of more than twice the days of the early evidence are not tried.
    """
    start = Posterior(rate=rate)
    if not clicks.enough:
        return start
    best = clicks.best(_strengths(replace(start, unseen=clicks.unseen)))
    aging = [replace(each, half_life=days) for days in _HALF_LIVES if days <= 2 * n_days for each in _strengths(best)]
    if not aging:
        return best
    aged = clicks.best(aging)
    return aged if surely_better(clicks.likelihood(aged), clicks.likelihood(best)) else best


def surely_better(likelihood: Float64, than: Float64) -> bool:
    """Return whether the log likelihoods of queries are higher than others, by more than chance."""
    gain = likelihood - than
    return bool(gain.sum() > _SURE * float(gain.std()) * np.sqrt(len(gain)))


def _strengths(posterior: Posterior) -> list[Posterior]:
    return [
        replace(posterior, strength=strength, exponent=exponent) for exponent in _EXPONENTS for strength in _STRENGTHS
    ]


@numba.njit(cache=True, nogil=True)
def _combine(p, looks, choices, few_looks, few_choices, strength, exponent, rate, unseen):  # type: ignore[no-untyped-def]
    """Return the mean of `Posterior.mean` and its divisor; arrays of `few` are empty if there are none."""
    mean, total = np.empty(len(p)), np.empty(len(p))
    for i in range(len(p)):
        expected = p[i] * unseen ** max(1.0 - looks[i], 0.0)
        ratio = rate / max(expected, _TINY)
        looked = max(looks[i], choices[i])
        surplus = choices[i] - looked * expected
        if len(few_looks):
            surplus -= max(few_choices[i] - max(few_looks[i], few_choices[i]) * expected, 0.0)
        prior = strength * (np.sqrt(ratio) if exponent == 0.5 else ratio**exponent)
        total[i] = looked + min(prior, _MOST_PRIOR)
        mean[i] = expected + surplus / total[i]
    return mean, total
