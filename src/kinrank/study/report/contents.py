"""Contents of a report as plain values: everything is computed before anything is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.measure import Measure, PairedComparison
from kinrank.study.answer import Answer, Claim
from kinrank.study.comparison import Comparison, Difference, Entrant
from kinrank.study.report.shares import Kind


@dataclass(frozen=True)
class Timing:
    """Time to rank one query, in milliseconds.

    Attributes
    ----------
    name : str
        The entrant.
    median, p95 : float
        Median and 95th percentile over the timed queries.
    """

    name: str
    median: float
    p95: float


@dataclass(frozen=True)
class NeighborCurve:
    """Gain of each k over one linear model.

    Attributes
    ----------
    gains : mapping of int to PairedComparison
        Gain by k, in ascending order of k.
    measure : Measure
        The measure.
    queries : int
        Number of queries.
    validation : bool
        Whether they are validation queries, which may be used to choose k, or test queries, which may not.
    """

    gains: Mapping[int, PairedComparison]
    measure: Measure
    queries: int
    validation: bool


@dataclass(frozen=True)
class ChangeRatios:
    """How much the training set of a query changes if models are learned in advance (Geng et al. 2008, 3.3.4).

    Attributes
    ----------
    by_mode : mapping of str to mapping of int to float
        Mean change ratio by k, for "offline-1" and "offline-2".
    queries : int
        Number of queries in the mean.
    """

    by_mode: Mapping[str, Mapping[int, float]]
    queries: int


@dataclass(frozen=True, eq=False)
class FeatureShares:
    """Share of each feature in the ranking, if models are linear; see `kinrank.study.report.shares`.

    Attributes
    ----------
    by_query : float64 array of shape (queries, features)
        Shares in the model of each query.
    overall : float64 array of shape (features,)
        Shares in the global model.
    kinds : tuple of Kind
        Groups of queries with similar shares.
    """

    by_query: Float64
    overall: Float64
    kinds: tuple[Kind, ...]


@dataclass(frozen=True, eq=False)
class NeighborAnalysis:
    """How a ranker that learns from neighbors treats the test queries, or a sample of them.

    Attributes
    ----------
    name : str
        The entrant.
    whole : bool
        Whether the analyzed ranker is the entrant itself, or a part of it.
    n_judged : int
        Number of judged queries it was fitted on.
    n_neighbors : int or None
        k; None if neighbors are chosen by radius.
    shown : int64 array
        Positions of the test queries that are shown.
    positions : float64 array of shape (shown, 2)
        Positions on the map, in the unit square.
    nearest : tuple of tuples of str
        Names of the nearest judged queries of each query.
    shares : FeatureShares or None
        None if models are not linear.
    curve : NeighborCurve or None
        None if another k needs a new fit.
    ratios : ChangeRatios or None
        None if neighbors are chosen by radius, or are cells.
    """

    name: str
    whole: bool
    n_judged: int
    n_neighbors: int | None
    shown: NDArray[np.int64]
    positions: Float64
    nearest: tuple[tuple[str, ...], ...]
    shares: FeatureShares | None
    curve: NeighborCurve | None
    ratios: ChangeRatios | None


@dataclass(frozen=True)
class LeakCheck:
    """How many test queries were seen in training.

    Attributes
    ----------
    seen : int
        Test queries that were seen in training.
    near : int or None
        Test queries with a near-duplicate in training; None if only ids could be compared.
    seen_by : tuple of str
        Entrants whose own records show that they were fitted on test queries.
    unchecked : tuple of str
        Entrants whose training queries are unknown.
    others : PairedComparison or None
        The subject compared with the baseline on the remaining test queries; None if those are too few, or all.
    """

    seen: int
    near: int | None
    seen_by: tuple[str, ...]
    unchecked: tuple[str, ...]
    others: PairedComparison | None


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that a report shows.

    Attributes
    ----------
    title : str
        The user's title.
    comparison : Comparison
        The compared entrants, the baseline first.
    subject : str
        Name of the entrant that the report is about.
    names : tuple of str
        Names of the test queries.
    levels : array of str
        Difficulty of each query; see `kinrank.measure.difficulty`.
    timings : tuple of Timing
        Times of the entrants that have a ranker.
    neighbors : NeighborAnalysis or None
        None if no entrant learns from neighbors.
    leak_check : LeakCheck or None
        None if no training queries are known.
    answer : Answer or None
        What the ladder says about the subject; None if it has no model per query.
    ingredients : mapping of str to float
        Mean share of each ingredient of the subject in its scores; empty if it has only one.
    by : str or None
        Query column that the kinds of queries are taken from.
    groups : mapping of str to int64 array
        Positions of the test queries by value of that column; empty without one.
    titles : mapping of str to str, or None
        Titles of documents by id, to show lists before and after.
    sources : mapping of str to str
        Where the data came from, by what it was used for.
    made : str
        When the report was made, and with which versions.
    """

    title: str
    comparison: Comparison
    subject: str
    names: tuple[str, ...]
    levels: NDArray[np.str_]
    timings: tuple[Timing, ...]
    neighbors: NeighborAnalysis | None
    leak_check: LeakCheck | None
    answer: Answer | None = None
    ingredients: Mapping[str, float] = field(default_factory=dict)
    by: str | None = None
    groups: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    titles: Mapping[str, str] | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    made: str = ""

    @property
    def claim(self) -> Claim:
        """The difference of the subject from the baseline: as in the answer if it is one of its claims."""
        difference = self.difference
        answered = () if self.answer is None else (self.answer.gain, self.answer.own)
        for claim in answered:
            if claim is not None and (claim.name, claim.against) == (difference.name, difference.against):
                return claim
        return Claim(difference.name, difference.against, difference.paired)

    @property
    def measure(self) -> Measure:
        """The main measure: the first of the comparison."""
        return self.comparison.measures[0]

    @property
    def subject_entrant(self) -> Entrant:
        """The entrant that the report is about."""
        return self.comparison[self.subject]

    @property
    def difference(self) -> Difference:
        """The subject compared with the baseline."""
        return self.comparison.difference(self.subject, self.measure)

    @property
    def gains(self) -> Float64:
        """Gain of each query over the baseline; NaN if the measure skips the query."""
        return self.subject_entrant.per_query(self.measure) - self.comparison.baseline.per_query(self.measure)
