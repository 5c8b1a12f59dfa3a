"""What a report tells, as plain values: everything is computed before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.measure import Measure, PairedComparison
from kinrank.study.comparison import Comparison, Difference, Entrant
from kinrank.study.report.projection import Kind


@dataclass(frozen=True)
class Timing:
    """How long an entrant takes to rank one query, alone, in milliseconds.

    Attributes
    ----------
    name : str
        The entrant.
    median, p95 : float
        Over the queries timed.
    """

    name: str
    median: float
    p95: float


@dataclass(frozen=True)
class NeighborCurve:
    """What k does: each k against one model for all queries.

    Attributes
    ----------
    gains : mapping of int to PairedComparison
        By k, ascending.
    measure : Measure
        Of what.
    queries : int
        How many queries were tried.
    validation : bool
        Whether they are validation queries, on which k may be chosen; else test queries, on which it must not.
    """

    gains: Mapping[int, PairedComparison]
    measure: Measure
    queries: int
    validation: bool


@dataclass(frozen=True)
class ChangeRatios:
    """How much the training set of a query would change if models were learned in advance (Geng et al. 2008, 3.3.4).

    Attributes
    ----------
    by_mode : mapping of str to mapping of int to float
        For "offline-1" and "offline-2" the mean change ratio by k.
    queries : int
        How many queries it is the mean of.
    """

    by_mode: Mapping[str, Mapping[int, float]]
    queries: int


@dataclass(frozen=True, eq=False)
class Weights:
    """What decides the ranking of each query, where models are linear.

    Attributes
    ----------
    shares : float64 array of shape (queries, features)
        See `kinrank.study.report.landscape.deciding_shares`.
    everywhere : float64 array of shape (features,)
        The same of the global model.
    kinds : tuple of Kind
        Queries that want about the same.
    """

    shares: Float64
    everywhere: Float64
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, eq=False)
class NeighborAnalysis:
    """What a ranker that learns from neighbors tells of the test queries, or of some of them where they are many.

    Attributes
    ----------
    name : str
        The entrant.
    whole : bool
        Whether it learns from neighbors and does nothing else; if not, all this is of the part of it that does.
    judged : int
        How many judged queries it learns from.
    n_neighbors : int or None
        k; None where it goes by radius.
    shown : int64 array
        The test queries that the following describe, by position.
    places : float64 array of shape (shown, 2)
        On the map, within the unit square.
    kin : tuple of tuples of str
        The judged queries nearest to each, by name.
    weights : Weights or None
        None where models are not linear.
    curve : NeighborCurve or None
        None where another k means fitting again.
    ratios : ChangeRatios or None
        None where neighbors go by radius, or are cells.
    """

    name: str
    whole: bool
    judged: int
    n_neighbors: int | None
    shown: NDArray[np.int64]
    places: Float64
    kin: tuple[tuple[str, ...], ...]
    weights: Weights | None
    curve: NeighborCurve | None
    ratios: ChangeRatios | None


@dataclass(frozen=True)
class LeakCheck:
    """How many test queries are not new: what is measured on them says nothing about new ones.

    Attributes
    ----------
    seen : int
        Test queries that are among those learned from.
    near : int or None
        Test queries that have something very like them there; None where only ids could be compared.
    seen_by : tuple of str
        Entrants that say themselves that they have learned from some.
    unchecked : tuple of str
        Entrants of which nobody knows what they have learned from.
    others : PairedComparison or None
        The subject against the baseline on the test queries that are neither; None where those are too few, or all.
    """

    seen: int
    near: int | None
    seen_by: tuple[str, ...]
    unchecked: tuple[str, ...]
    others: PairedComparison | None


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that a report says.

    Attributes
    ----------
    title : str
        What was measured, in the user's words.
    comparison : Comparison
        The entrants, the baseline first.
    subject : str
        The entrant that the report is about.
    names : tuple of str
        The test queries by name.
    levels : array of str
        How hard each is; see `kinrank.measure.difficulty`.
    timings : tuple of Timing
        Of the entrants that can be timed.
    kinship : NeighborAnalysis or None
        None where no entrant learns from neighbors.
    guard : LeakCheck or None
        Whether the test queries are new; None where nothing is known of what was learned from.
    """

    title: str
    comparison: Comparison
    subject: str
    names: tuple[str, ...]
    levels: NDArray[np.str_]
    timings: tuple[Timing, ...]
    kinship: NeighborAnalysis | None
    leak_check: LeakCheck | None

    @property
    def measure(self) -> Measure:
        """What the report is told by: the first measure."""
        return self.comparison.measures[0]

    @property
    def own(self) -> Entrant:
        """The entrant that the report is about."""
        return self.comparison[self.subject]

    @property
    def difference(self) -> Difference:
        """The subject against the baseline."""
        return self.comparison.difference(self.subject, self.measure)

    @property
    def gains(self) -> Float64:
        """What each query gains over the baseline; NaN where the measure leaves it out."""
        return self.own.per_query(self.measure) - self.comparison.baseline.per_query(self.measure)
