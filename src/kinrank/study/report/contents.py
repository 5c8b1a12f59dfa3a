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
    """Time to rank one query, in milliseconds."""

    name: str
    """The entrant."""
    median: float
    p95: float
    """Median and 95th percentile over the timed queries."""


@dataclass(frozen=True)
class NeighborCurve:
    """Gain of each k over one linear model."""

    gains: Mapping[int, PairedComparison]
    """Gain by k, in ascending order of k."""
    measure: Measure
    """The measure."""
    queries: int
    """Number of queries."""
    validation: bool
    """Whether they are validation queries, which may be used to choose k, or test queries, which may not."""


@dataclass(frozen=True)
class ChangeRatios:
    """How much the training set of a query changes if models are learned in advance (Geng et al. 2008, 3.3.4)."""

    by_mode: Mapping[str, Mapping[int, float]]
    """Mean change ratio by k, for "offline-1" and "offline-2"."""
    queries: int
    """Number of queries in the mean."""


@dataclass(frozen=True, eq=False)
class FeatureShares:
    """Share of each feature in the ranking, if models are linear; see `kinrank.study.report.shares`."""

    by_query: Float64
    """Shares in the model of each query; shape (queries, features)."""
    overall: Float64
    """Shares in the global model; shape (features,)."""
    kinds: tuple[Kind, ...]
    """Groups of queries with similar shares."""


@dataclass(frozen=True, eq=False)
class NeighborAnalysis:
    """How a ranker that learns from neighbors treats the test queries, or a sample of them."""

    name: str
    """The entrant."""
    whole: bool
    """Whether the analyzed ranker is the entrant itself, or a part of it."""
    n_judged: int
    """Number of judged queries it was fitted on."""
    n_neighbors: int | None
    """k; None if neighbors are chosen by radius."""
    shown: NDArray[np.int64]
    """Positions of the test queries that are shown."""
    positions: Float64
    """Positions on the map, in the unit square; shape (shown, 2)."""
    nearest: tuple[tuple[str, ...], ...]
    """Names of the nearest judged queries of each query."""
    shares: FeatureShares | None
    """None if models are not linear."""
    curve: NeighborCurve | None
    """None if another k needs a new fit."""
    ratios: ChangeRatios | None
    """None if neighbors are chosen by radius, or are cells."""


@dataclass(frozen=True)
class LeakCheck:
    """How many test queries were seen in training."""

    seen: int
    """Test queries that were seen in training."""
    near: int | None
    """Test queries with a near-duplicate in training; None if only ids could be compared."""
    seen_by: tuple[str, ...]
    """Entrants whose own records show that they were fitted on test queries."""
    unchecked: tuple[str, ...]
    """Entrants whose training queries are unknown."""
    others: PairedComparison | None
    """The subject compared with the baseline on the remaining test queries; None if those are too few, or all."""


@dataclass(frozen=True, eq=False)
class Report:
    """Everything that a report shows."""

    title: str
    """The user's title."""
    comparison: Comparison
    """The compared entrants, the baseline first."""
    subject: str
    """Name of the entrant that the report is about."""
    names: tuple[str, ...]
    """Names of the test queries."""
    levels: NDArray[np.str_]
    """Difficulty of each query; see `kinrank.measure.difficulty`."""
    timings: tuple[Timing, ...]
    """Times of the entrants that have a ranker."""
    neighbors: NeighborAnalysis | None
    """None if no entrant learns from neighbors."""
    leak_check: LeakCheck | None
    """None if no training queries are known."""
    answer: Answer | None = None
    """What the ladder says about the subject; None if it has no model per query."""
    ingredients: Mapping[str, float] = field(default_factory=dict)
    """Mean share of each ingredient of the subject in its scores; empty if it has only one."""
    by: str | None = None
    """Query column that the kinds of queries are taken from."""
    groups: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    """Positions of the test queries by value of that column; empty without one."""
    titles: Mapping[str, str] | None = None
    """Titles of documents by id, to show lists before and after."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where the data came from, by what it was used for."""
    made: str = ""
    """When the report was made, and with which versions."""

    @property
    def claim(self) -> Claim:
        """The difference of the subject from the baseline: as in the answer if it is one of its claims."""
        difference = self.difference
        answered = () if self.answer is None else (self.answer.gain, self.answer.own, self.answer.precedents)
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
