"""Compare rankings of one judged test set: quality, cost, and significance of the differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.measure import Evaluation, Measure, PairedComparison, compare_paired, holm
from kinrank.rankers.capabilities import capabilities_of, takes_evidence
from kinrank.study._answer import Answer, NearAndFar

Origin = Literal["ranker", "peer", "model", "run", "oracle"]


class Fittable(Protocol):
    """A ranker that can be fitted: one of kinrank, or of another library (see `kinrank.study.peers`)."""

    def fit(self, queries: QuerySet, /) -> Self:
        """Fit on judged queries."""

    def predict(self, queries: QuerySet, /) -> Float64:
        """Return a score for every row."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters."""

    def learned_from(self, queries: QuerySet, /) -> NDArray[np.bool_] | None:
        """Return which of these queries were used in training; None if unknown."""


@dataclass(frozen=True)
class Coverage:
    """How well a run covers the judged documents."""

    absent_documents: int
    """Documents in the data that are missing from the run; they are ranked last."""
    absent_queries: int
    """Queries in the data without any document in the run."""
    unknown_documents: int
    """Documents in the run that are not in the data; they are ignored."""
    unjudged_top: float
    """Share of the run's top 10 documents that are not in the data, over queries that are in both."""


@dataclass(frozen=True, eq=False, repr=False)
class Entrant:
    """One ranking of the test queries, with its origin, quality and cost."""

    name: str
    """Name, such as ``"knn(n_neighbors=400)"`` or a path."""
    origin: Origin
    """A ranker of kinrank, a ranker of another library, a saved model, a TREC run, or an upper bound."""
    scores: Float64
    """Score of each row of the test queries; shape (rows,)."""
    evaluation: Evaluation
    """Values of the measures."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of the ranker; empty for a run."""
    fit_seconds: float | None = None
    rank_seconds: float | None = None
    """Time to fit on the training queries and to score the test queries; None if unknown."""
    ranker: Fittable | None = None
    """The fitted ranker; None for a run, and if there is one ranker per fold."""
    coverage: Coverage | None = None
    """Coverage of a run."""
    parts: tuple[Entrant, ...] = ()
    """The entrants of the folds, if there are several."""

    @property
    def remembers(self) -> bool:
        """Whether it ranks documents by how they were judged or chosen for similar queries."""
        return capabilities_of(self.parts[0].ranker if self.parts else self.ranker).remembers

    def per_query(self, measure: Measure) -> Float64:
        """Return the value of each query."""
        return self.evaluation.per_query[measure]

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries, by id, were used in training; None if unknown, as for a run."""
        return None if self.ranker is None else self.ranker.learned_from(queries)

    def __repr__(self) -> str:
        return f"Entrant({self.name!r}, {self.evaluation!r})"


def n_with_choices(ranker: object, queries: QuerySet) -> int:
    """Return how many queries a ranker ranks by what people chose for them."""
    if not takes_evidence(ranker) or ranker.chosen_ is None:
        return 0
    return len(np.unique(queries.query_of_row[ranker.chosen_.totals(queries).looks > 0]))


@dataclass(frozen=True)
class Difference:
    """Difference between two entrants in one measure."""

    name: str
    against: str
    """The two entrants; the difference is positive if the first is better."""
    measure: Measure
    paired: PairedComparison
    """Mean difference, interval, paired t-test, wins, ties and losses."""
    p_holm: float
    """The p-value, Holm-corrected for all tests of the comparison."""


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Entrants on one judged test set, and their differences."""

    queries: QuerySet
    """The judged test queries."""
    measures: tuple[Measure, ...]
    entrants: tuple[Entrant, ...]
    """The entrants, the baseline first."""
    differences: tuple[Difference, ...]
    """Each entrant compared with the baseline, in every measure."""
    near_and_far: tuple[NearAndFar, ...] = ()
    """Differences in the first measure if an entrant remembers judgments, with a near training query and without."""

    @property
    def baseline(self) -> Entrant:
        """The entrant that the others are compared with."""
        return self.entrants[0]

    def __getitem__(self, name: str) -> Entrant:
        for entrant in self.entrants:
            if entrant.name == name:
                return entrant
        raise ParameterError(f"no entrant {name!r}; entrants: {', '.join(repr(each.name) for each in self.entrants)}")

    def difference(self, name: str, measure: Measure) -> Difference:
        """Return the difference of an entrant from the baseline."""
        for each in self.differences:
            if (each.name, each.measure) == (name, measure):
                return each
        raise ParameterError(f"{name!r} was not compared with {self.baseline.name!r} in {measure!r}: name an entrant")

    def near_and_far_with(self, answer: Answer | None) -> tuple[NearAndFar, ...]:
        """Return `near_and_far` with that of an answer about the same queries."""
        found = (*self.near_and_far, *(() if answer is None else answer.near_and_far))
        return tuple({(each.name, each.against): each for each in found}.values())

    def __repr__(self) -> str:
        names = ", ".join(entrant.name for entrant in self.entrants)
        return f"Comparison({len(self.queries):,} queries, {', '.join(map(repr, self.measures))}: {names})"


def compare(
    queries: QuerySet,
    entrants: Sequence[Entrant],
    *,
    baseline: str | None = None,
    groups: ArrayLike | None = None,
) -> Comparison:
    """Compare rankings of the same judged queries, with Holm-corrected tests.

    Parameters
    ----------
    queries
        The judged test queries.
    entrants
        Rankings that `kinrank.study.study.Study` measured, all with the same measures.
    baseline
        Name of the entrant that the others are compared with; by default the first.
    groups
        Group of each query; queries of a group may vary together.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> from kinrank.measure import NDCG
    >>> from kinrank.study.study import Study
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> study = Study.split(camps[:40], camps[40:])
    >>> comparison = compare(study.queries, [study.enter(name) for name in ("single", "knn(n_neighbors=5)")])
    >>> comparison
    Comparison(20 queries, NDCG @ 10: single, knn(n_neighbors=5))
    >>> gain = comparison.difference("knn(n_neighbors=5)", NDCG @ 10)
    >>> gain.paired.wins, gain.paired.losses, gain.p_holm < 0.01
    (10, 0, True)
    """
    names = [entrant.name for entrant in entrants]
    if not names or len(set(names)) < len(names):
        raise ParameterError(f"pass at least one entrant, each with a different name, got {names}")
    if baseline is not None and baseline not in names:
        raise ParameterError(f"baseline {baseline!r} is not an entrant: choose one of {', '.join(map(repr, names))}")
    ordered = sorted(entrants, key=lambda entrant: entrant.name != (baseline or names[0]))
    measures = tuple(ordered[0].evaluation.per_query)
    compared = [(measure, other, ordered[0]) for measure in measures for other in ordered[1:]]
    tested = [compare_paired(a.per_query(each), b.per_query(each), groups=groups) for each, a, b in compared]
    corrected = holm([paired.p for paired in tested]).tolist()
    differences = tuple(
        Difference(a.name, b.name, measure, *figures)
        for (measure, a, b), *figures in zip(compared, tested, corrected, strict=True)
    )
    return Comparison(queries, measures, tuple(ordered), differences)
