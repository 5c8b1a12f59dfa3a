"""Measures of binary relevance: P, AP, RR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from kinrank.arrays import Float64
from kinrank.errors import ParameterError
from kinrank.measure.base import Measure
from kinrank.measure.lists import RankedLists


@dataclass(frozen=True, kw_only=True, repr=False)
class _Binary(Measure):
    relevant_from: float = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.relevant_from, int | float) or not self.relevant_from > 0:
            raise ParameterError(f"relevant_from must be a grade above 0, got {self.relevant_from!r}")

    def _relevant(self, lists: RankedLists) -> NDArray[np.bool_]:
        return lists.grades >= self.relevant_from

    def _has_relevant(self, lists: RankedLists) -> NDArray[np.bool_]:
        return lists.total(self._relevant(lists)) > 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Precision(_Binary):
    """The share of relevant documents among the first k; shorter lists are padded with irrelevant ones.

    Attributes
    ----------
    relevant_from : float
        The lowest grade that is relevant.
    """

    name: ClassVar[str] = "P"

    def _values(self, lists: RankedLists) -> Float64:
        head = lists.head(self.k)
        found = lists.total(lists.tie_mean(self._relevant(lists))[head], head)
        return found / (np.maximum(lists.sizes, 1) if self.k is None else self.k)


@dataclass(frozen=True, kw_only=True, repr=False)
class AveragePrecision(_Binary):
    """The mean over all relevant documents of the precision at their rank; 0 for those below the cutoff.

    Attributes
    ----------
    relevant_from : float
        The lowest grade that is relevant.

    Notes
    -----
    In a tie of n documents, r of them relevant, position t is relevant with probability r/n; in that case,
    (t - 1)(r - 1)/(n - 1) of the t - 1 positions above it are expected to be relevant (McSherry and Najork, 2008). A
    document without a tie is a tie of one.
    """

    name: ClassVar[str] = "AP"

    def _values(self, lists: RankedLists) -> Float64:
        relevant = self._relevant(lists)
        n, r, c, t = _tie_counts(lists, relevant)
        above = c + (t - 1) * (r - 1) / np.maximum(n - 1, 1)
        expected = r / n * (1 + above) / lists.position
        head = lists.head(self.k)
        return lists.total(expected[head], head) / np.maximum(lists.total(relevant), 1)


@dataclass(frozen=True, kw_only=True, repr=False)
class ReciprocalRank(_Binary):
    """The reciprocal of the rank of the first relevant document; 0 if it is below the cutoff.

    Attributes
    ----------
    relevant_from : float
        The lowest grade that is relevant.

    Notes
    -----
    In a tie of n documents, r of them relevant, the first relevant one is at position t with probability
    C(n - t, r - 1) / C(n, r). A document without a tie is a tie of one.
    """

    name: ClassVar[str] = "RR"

    def _values(self, lists: RankedLists) -> Float64:
        n, r, c, t = _tie_counts(lists, self._relevant(lists))
        first = np.flatnonzero((c == 0) & (r > 0) & (lists.position <= (self.k or np.inf)))
        n, r, t = n[first], r[first], t[first]
        chance = np.exp(_log_binomial(n - t, r - 1) - _log_binomial(n, r))
        reciprocal = np.zeros(len(c))
        reciprocal[first] = chance / lists.position[first]
        return lists.total(reciprocal)


def _tie_counts(lists: RankedLists, relevant: NDArray[np.bool_]) -> tuple[Float64, Float64, Float64, Float64]:
    """Return for the tie of each row: its documents, its relevant ones, those before it; and the position in it."""
    found = np.cumsum(relevant, dtype=np.float64)  # whole numbers, so the sum is exact
    before_list = np.concatenate(([0.0], found))[lists.offsets[:-1]][lists.query]
    start = np.arange(len(relevant)) if lists.tie_start is None else lists.tie_start
    before_tie = found[start] - relevant[start] - before_list
    position = (np.arange(len(relevant)) - start + 1).astype(np.float64)
    return lists.tie_total(np.ones(len(relevant))), lists.tie_total(relevant), before_tie, position


def _log_binomial(n: Float64, r: Float64) -> Float64:
    # gammaln is infinite at 0, -1, ..., so impossible positions get probability exp(-inf) = 0
    log: Float64 = gammaln(n + 1) - gammaln(r + 1) - gammaln(n - r + 1)
    return log


P = Precision()
AP = AveragePrecision()
RR = ReciprocalRank()
