"""The expected rate of choices of a document, from what a ranker predicts and what people chose."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numba
import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.memory.evidence import Totals

_STRENGTHS = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 40.0)
_EXPONENTS = (0.0, 0.5, 1.0)
_HALF_LIVES = (60.0, 30.0, 14.0, 7.0)
_LEAST_CHOICES = 100.0  # of later days, below which nothing is chosen on them
_SURE = 2.0  # standard errors by which a setting must be better to replace a simpler one
_TINY = 1e-9
_EDGE = 1e-4  # a rate of choices is that far from 0 and 1
_NOBODY = Totals.zeros(0)


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
    discount: float = 0.0
    """g: what a look of a similar query counts; 0 if similar queries do not help."""
    width: float = 1.0
    """How similar a query must be, relative to the usual distance of the nearest one."""

    def mean(self, p: Float64, own: Totals, kin: Totals | None = None) -> Float64:
        """Return p + (C - L p + g R) / (κ + L + g N).

        Parameters
        ----------
        p
            The prediction of the ranker for each document, as a probability of a choice.
        own
            Looks L and choices C of the query.
        kin
            Looks N of similar queries, and in place of choices the residuals R: choices beyond those predicted.
        """
        return self._mean_and_looks(p, own, kin)[0]

    def draw(self, p: Float64, own: Totals, kin: Totals | None, rng: np.random.Generator) -> Float64:
        """Return rates of choices drawn from what they may be: Beta with the mean and the total of looks of `mean`."""
        mean, looks = self._mean_and_looks(p, own, kin)
        mean = np.clip(mean, _EDGE, 1 - _EDGE)
        drawn: Float64 = rng.beta(mean * looks, (1 - mean) * looks)
        return drawn

    def _mean_and_looks(self, p: Float64, own: Totals, kin: Totals | None) -> tuple[Float64, Float64]:
        """Return the mean, and κ + L + g N."""
        few, kin = own.few or _NOBODY, kin if kin is not None and self.discount else _NOBODY
        found: tuple[Float64, Float64] = _combine(
            p, *own, *few, *kin, self.strength, self.exponent, self.rate, self.discount
        )
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

    def likelihood(self, posterior: Posterior, kin: Totals | None = None) -> Float64:
        """Return the log likelihood of the later choices of each query, as Poisson counts."""
        mean = np.maximum(posterior.mean(self.p, self.early(posterior.half_life), kin), 1e-4)
        terms = self.late.choices * np.log(mean) - self.late.looks * mean
        return np.bincount(self.query, weights=terms).astype(np.float64)

    def best(self, tried: Iterable[Posterior]) -> Posterior:
        """Return the settings under which the later choices are most likely."""
        return max(tried, key=lambda each: float(self.likelihood(each).sum()))


def choose_posterior(clicks: LaterClicks, rate: float, n_days: int) -> Posterior:
    """Choose the strength of predictions and the half-life of evidence on later clicks.

    Parameters
    ----------
    clicks
        The later clicks.
    rate
        Choices per look.
    n_days
        The number of days of the early evidence: half-lives of more than twice as many are not tried.
    """
    start = Posterior(rate=rate)
    if not clicks.enough:
        return start
    best = clicks.best(_strengths(start))
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
def _combine(p, looks, choices, few_looks, few_choices, kin_looks, kin_residuals, strength, exponent, rate, discount):  # type: ignore[no-untyped-def]
    """Return the mean of `Posterior.mean` and its divisor; arrays of `few` and `kin` are empty if there are none."""
    mean, total = np.empty(len(p)), np.empty(len(p))
    for i in range(len(p)):
        ratio = rate / max(p[i], _TINY)
        surplus = choices[i] - looks[i] * p[i]
        total[i] = looks[i]
        if len(few_looks):
            surplus -= max(few_choices[i] - few_looks[i] * p[i], 0.0)
        if len(kin_looks):
            surplus += discount * kin_residuals[i]
            total[i] += discount * kin_looks[i]
        total[i] += strength * (np.sqrt(ratio) if exponent == 0.5 else ratio**exponent)  # as NumPy rounds powers
        mean[i] = p[i] + surplus / total[i]
    return mean, total
