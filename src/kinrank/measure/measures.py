"""The measures by name: discounted gain, binary relevance, a cascade, and those of LETOR."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from kinrank.arrays import Float64, Int64
from kinrank.errors import DataError, ParameterError
from kinrank.measure.base import Measure, RankedLists
from kinrank.registry import Registry, check_choice
from kinrank.registry.notation import parse_settings, split_call


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


# --- measures of binary relevance: P, AP, RR --------------------------------------------------------------------------


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


# --- expected reciprocal rank: the user reads down the list until satisfied -------------------------------------------


@dataclass(frozen=True, kw_only=True, repr=False)
class ExpectedReciprocalRank(Measure):
    """The expected reciprocal of the position at which the user is satisfied (Chapelle et al. 2009, Eq. 4).

    A document of grade g satisfies the user with probability R = (2^g - 1) / 2^max_grade.

    Notes
    -----
    ``ties="average"`` raises: the expectation over random orders has no simple closed form.

    Examples
    --------
    >>> ERR(max_grade=2).per_query([2.0, 1.0], [1, 2], [0, 2]).tolist()
    [0.53125]
    """

    name: ClassVar[str] = "ERR"

    max_grade: int = 4
    """The highest grade of the scale, whether or not it occurs. Higher grades raise DataError."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.max_grade, bool) or not isinstance(self.max_grade, int) or not 1 <= self.max_grade <= 1000:
            raise ParameterError(f"max_grade must be a whole number from 1 to 1000, got {self.max_grade!r}")
        if self.ties == "average":
            raise ParameterError(
                "ERR does not support ties='average': use ties='pessimistic' and ties='optimistic' as bounds"
            )

    def _values(self, lists: RankedLists) -> Float64:
        if lists.grades.max(initial=0) > self.max_grade:
            raise DataError(
                f"grade {lists.grades.max():g} is above max_grade={self.max_grade}: set the highest grade, such as "
                f"ERR(max_grade={int(np.ceil(lists.grades.max()))})"
            )
        satisfied = (np.exp2(lists.grades) - 1) / 2.0**self.max_grade
        unsatisfied = lists.running(np.multiply, 1 - satisfied, self.k)
        arrives = unsatisfied / (1 - satisfied)  # R < 1, so the last factor can be divided out
        head = lists.head(self.k)
        return lists.total((arrives * satisfied / lists.position)[head], head)

    def _has_relevant(self, lists: RankedLists) -> NDArray[np.bool_]:
        return lists.total(lists.grades > 0) > 0


ERR = ExpectedReciprocalRank()


# --- the measures of LETOR's evaluation script and of Geng et al. 2008 ------------------------------------------------


LETOR_NDCG = NDCG(discount="letor", short_lists="zero")
"""LETOR's NDCG, with its own discount; NDCG@k is 0 for a list shorter than k."""

LETOR_MAP = AP
"""LETOR's MAP, which equals `AP`: grades from 1 are relevant, and a query without relevant documents counts 0."""

MEAN_NDCG_LETOR = MeanNDCG(discount="letor")
"""LETOR's MeanNDCG: the mean of NDCG at every position of the list."""

MEAN_NDCG_GENG = MeanNDCG(discount="geng") @ 10
"""The "mean NDCG" of Geng et al. 2008: the mean of NDCG@1 to NDCG@10 by its Eq. 4."""


# --- read measures from text, such as command-line options ------------------------------------------------------------


MEASURES = Registry(
    "measure",
    {
        "NDCG": "kinrank.measure.measures:NDCG",
        "DCG": "kinrank.measure.measures:DCG",
        "MeanNDCG": "kinrank.measure.measures:MeanNDCG",
        "AP": "kinrank.measure.measures:AP",
        "MAP": "kinrank.measure.measures:AP",
        "P": "kinrank.measure.measures:P",
        "RR": "kinrank.measure.measures:RR",
        "MRR": "kinrank.measure.measures:RR",
        "ERR": "kinrank.measure.measures:ERR",
        "LETOR_NDCG": "kinrank.measure.measures:LETOR_NDCG",
        "LETOR_MAP": "kinrank.measure.measures:LETOR_MAP",
        "MEAN_NDCG_LETOR": "kinrank.measure.measures:MEAN_NDCG_LETOR",
        "MEAN_NDCG_GENG": "kinrank.measure.measures:MEAN_NDCG_GENG",
    },
)
"""All measures by name."""

_CUTOFF = re.compile(r"(?P<call>.+?)\s*(?:@\s*(?P<k>\d+))?\s*")


def parse_measure(text: str) -> Measure:
    """Read a measure: its name, conventions in parentheses, a cutoff after ``@``.

    Names are case-insensitive. The `repr` of a measure can be read back.

    Examples
    --------
    >>> parse_measure("ndcg@10")
    NDCG @ 10
    >>> parse_measure("NDCG(discount=letor, no_relevant=skip)@5")
    NDCG(no_relevant='skip', discount='letor') @ 5
    >>> parse_measure("NDCG@ten")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: cannot read measure 'NDCG@ten': write it like NDCG@10 or NDCG(gain=linear)@10
    """
    match = _CUTOFF.fullmatch(text)
    if match is None or "@" in match["call"]:
        raise ParameterError(f"cannot read measure {text!r}: write it like NDCG@10 or NDCG(gain=linear)@10")
    name, settings = split_call(match["call"], "measure")
    names = {known.lower(): known for known in MEASURES}
    measure: Measure = MEASURES[names.get(name.lower(), name)]
    conventions = parse_settings(None, settings)
    if match["k"] is not None:
        conventions["k"] = int(match["k"])
    return measure(**conventions)
