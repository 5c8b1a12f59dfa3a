"""Measures of discounted gain: DCG, NDCG, and the mean of NDCG over positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64, Int64
from kinrank.errors import DataError
from kinrank.measure.base import Measure
from kinrank.measure.lists import RankedLists
from kinrank.registry.choices import check_choice


def _exp2(grades: Float64) -> Float64:
    if grades.max(initial=0) > 1000:
        raise DataError(
            f"grade {grades.max():g} is too large for the gain 2^grade - 1: rescale the grades, or use gain='linear'"
        )
    return np.exp2(grades) - 1


def _linear(grades: Float64) -> Float64:
    return grades


def _standard(position: Int64) -> Float64:
    discount: Float64 = 1 / np.log2(position + 1)
    return discount


def _letor(position: Int64) -> Float64:
    # No discount at positions 1 and 2, then 1/log2(i): also that of Järvelin and Kekäläinen with base 2.
    discount: Float64 = 1 / np.log2(np.maximum(position, 2))
    return discount


GAINS: dict[str, Callable[[Float64], Float64]] = {"exp2": _exp2, "linear": _linear}
# Eq. 4 of Geng et al. 2008 has "log(j)" without a base. With base 2 it equals LETOR's.
DISCOUNTS: dict[str, Callable[[Int64], Float64]] = {"standard": _standard, "letor": _letor, "geng": _letor}
SHORT_LISTS = ("as_is", "zero")


@dataclass(frozen=True, kw_only=True, repr=False)
class Dcg(Measure):
    """Discounted cumulative gain: the sum over positions of gain times discount."""

    name: ClassVar[str] = "DCG"

    gain: str = "exp2"
    """"exp2", 2^grade - 1, or "linear", the grade."""
    discount: str = "standard"
    """"standard", 1/log2(i + 1), or "letor": 1 at positions 1 and 2, then 1/log2(i). "geng" is Eq. 4 of Geng et al.
    2008, which we read as the same as "letor".
    """
    short_lists: str = "as_is"
    """The value of a list shorter than the cutoff: "as_is" measures the list, "zero" is 0, as in LETOR's script."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("gain", self.gain, GAINS)
        check_choice("discount", self.discount, DISCOUNTS)
        check_choice("short_lists", self.short_lists, SHORT_LISTS)

    def _values(self, lists: RankedLists) -> Float64:
        dcg = self._dcg(lists, lists.tie_mean(self._gains(lists.grades)))
        if self.short_lists == "zero" and self.k is not None:
            dcg[lists.sizes < self.k] = 0
        return dcg

    def _gains(self, grades: Float64) -> Float64:
        return GAINS[self.gain](grades)

    def _dcg(self, lists: RankedLists, gains: Float64) -> Float64:
        head = lists.head(self.k)
        return lists.total(gains[head] * DISCOUNTS[self.discount](lists.position[head]), head)

    def _has_relevant(self, lists: RankedLists) -> NDArray[np.bool_]:
        return lists.total(lists.grades > 0) > 0


@dataclass(frozen=True, kw_only=True, repr=False)
class Ndcg(Dcg):
    """DCG divided by the DCG of the ideal order, with the same cutoff.

    The conventions are those of `Dcg`. ``ties="average"`` is the definition of McSherry and Najork (2008), which
    scikit-learn uses.
    """

    name: ClassVar[str] = "NDCG"

    def _values(self, lists: RankedLists) -> Float64:
        return _ratio(super()._values(lists), self._dcg(lists, self._gains(lists.ideal)))


@dataclass(frozen=True, kw_only=True, repr=False)
class MeanNdcg(Dcg):
    """The mean of NDCG@1, NDCG@2, ... up to the cutoff, or to the end of each list without one.

    Without a cutoff it is LETOR's MeanNDCG; ``MeanNDCG(discount="geng") @ 10`` is the "mean NDCG" of Geng et al.
    2008. A list of n < k documents has NDCG@i = NDCG@n for i > n, or 0 with ``short_lists="zero"``.
    """

    name: ClassVar[str] = "MeanNDCG"

    def _values(self, lists: RankedLists) -> Float64:
        discount = DISCOUNTS[self.discount](lists.position)
        gains = lists.tie_mean(self._gains(lists.grades))
        ndcg = _ratio(
            lists.running(np.add, gains * discount, self.k),
            lists.running(np.add, self._gains(lists.ideal) * discount, self.k),
        )
        head = lists.head(self.k)
        total = lists.total(ndcg[head], head)
        if self.k is None:
            return total / np.maximum(lists.sizes, 1)
        if self.short_lists == "as_is":
            last = lists.position == lists.sizes[lists.query]
            total += lists.total(ndcg[last], last) * np.maximum(self.k - lists.sizes, 0)
        return total / self.k


def _ratio(dcg: Float64, best: Float64) -> Float64:
    ratio: Float64 = np.divide(dcg, best, out=np.zeros_like(best), where=best > 0)
    return ratio


DCG = Dcg()
NDCG = Ndcg()
MeanNDCG = MeanNdcg()
