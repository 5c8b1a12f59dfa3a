"""Rankings of one judged test set side by side: what each reaches, what it costs, which differences are real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.measure import Evaluation, Measure, PairedComparison, compare_paired, holm
from kinrank.registry.choices import check_choice

Origin = Literal["ranker", "peer", "model", "run", "oracle"]
Pairs = Literal["baseline", "all"]


class Fittable(Protocol):
    """What learns from judged queries and scores others: our rankers, and other libraries behind `study.peers`."""

    def fit(self, queries: QuerySet, /) -> Self:
        """Learn."""

    def predict(self, queries: QuerySet, /) -> Float64:
        """Score every row."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings."""

    def learned_from(self, queries: QuerySet, /) -> NDArray[np.bool_] | None:
        """Return which of these queries it has learned from; None if it does not know."""


@dataclass(frozen=True)
class Coverage:
    """How far a run covers the judged documents.

    Attributes
    ----------
    absent_documents : int
        Documents of the data that the run lacks; they are ranked last.
    absent_queries : int
        Queries of the data of which the run has no document.
    unknown_documents : int
        Documents of the run that the data lacks; they are left out.
    unjudged_top : float
        The share of the run's first ten documents of each query that the data lacks, over queries of both.
    """

    absent_documents: int
    absent_queries: int
    unknown_documents: int
    unjudged_top: float


@dataclass(frozen=True, eq=False, repr=False)
class Entrant:
    """One ranking of the test queries: where it comes from, what it reaches, what it cost.

    Attributes
    ----------
    name : str
        As asked for: ``"knn(n_neighbors=400)"``, a path.
    origin : {"ranker", "peer", "model", "run", "oracle"}
        One of our rankers, another library, a saved model, a TREC run; or what no ranker can reach.
    scores : float64 array of shape (rows,)
        One per row of the test queries.
    evaluation : Evaluation
        The measures, with a value per query.
    settings : mapping
        The parameters it was fitted with; empty for a run.
    fit_seconds, rank_seconds : float or None
        To learn from all training queries, to score all test queries; None where that happened elsewhere.
    ranker : Fittable or None
        The fitted ranker; None for a run, and where each fold had its own.
    coverage : Coverage or None
        For a run: what it lacks.
    """

    name: str
    origin: Origin
    scores: Float64
    evaluation: Evaluation
    settings: Mapping[str, Any] = field(default_factory=dict)
    fit_seconds: float | None = None
    rank_seconds: float | None = None
    ranker: Fittable | None = None
    coverage: Coverage | None = None

    def per_query(self, measure: Measure) -> Float64:
        """The value of each query."""
        return self.evaluation.per_query[measure]

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Which of these queries, by id, it has learned from; None where nobody knows, as of a run."""
        return None if self.ranker is None else self.ranker.learned_from(queries)

    def __repr__(self) -> str:
        return f"Entrant({self.name!r}, {self.evaluation!r})"


@dataclass(frozen=True)
class Difference:
    """How one entrant differs from another by one measure.

    Attributes
    ----------
    name, against : str
        The two entrants; positive where the first is better.
    measure : Measure
        What was measured.
    paired : PairedComparison
        Mean difference, its interval, paired t, wins, ties and losses.
    p_permutation : float
        The p-value of a sign-flip permutation test of the same differences.
    p_holm, p_permutation_holm : float
        Both p-values corrected for all tests of the comparison.
    """

    name: str
    against: str
    measure: Measure
    paired: PairedComparison
    p_permutation: float
    p_holm: float
    p_permutation_holm: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Entrants on one judged test set, and the differences between them.

    Attributes
    ----------
    queries : QuerySet
        The judged test queries.
    measures : tuple of Measure
        What was measured, conventions included.
    entrants : tuple of Entrant
        The baseline first.
    differences : tuple of Difference
        Each entrant against the baseline, or each pair, by every measure.
    """

    queries: QuerySet
    measures: tuple[Measure, ...]
    entrants: tuple[Entrant, ...]
    differences: tuple[Difference, ...]

    @property
    def baseline(self) -> Entrant:
        """What the others are held against."""
        return self.entrants[0]

    def __getitem__(self, name: str) -> Entrant:
        for entrant in self.entrants:
            if entrant.name == name:
                return entrant
        raise ParameterError(f"no entrant {name!r}: there are {', '.join(repr(each.name) for each in self.entrants)}")

    def difference(self, name: str, measure: Measure, against: str | None = None) -> Difference:
        """One of the differences; against the baseline where nothing else is said."""
        other = self.baseline.name if against is None else against
        for each in self.differences:
            if (each.name, each.against, each.measure) == (name, other, measure):
                return each
        raise ParameterError(f"{name!r} was not compared with {other!r} by {measure!r}: compare with pairs='all'")

    def __repr__(self) -> str:
        names = ", ".join(entrant.name for entrant in self.entrants)
        return f"Comparison({len(self.queries):,} queries, {', '.join(map(repr, self.measures))}: {names})"


def compare(
    queries: QuerySet,
    entrants: Sequence[Entrant],
    *,
    baseline: str | None = None,
    pairs: Pairs = "baseline",
    confidence: float = 0.95,
    n_resamples: int = 9999,
    seed: int = 0,
) -> Comparison:
    """Compare rankings of the same judged queries, corrected by Holm for the number of tests.

    Parameters
    ----------
    queries
        The judged test queries.
    entrants
        What `kinrank.study.entrants.evaluate_entrant` makes, all with the same measures.
    baseline
        The name of the entrant that the others are held against; the first where not given.
    pairs
        "baseline" tests every other entrant against the baseline, "all" every pair.
    confidence
        Level of the intervals.
    n_resamples, seed
        Of the permutation tests.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> from kinrank.measure import NDCG
    >>> from kinrank.study.entrants import evaluate_entrant
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> train, test = camps[:40], camps[40:]
    >>> both = [evaluate_entrant(name, test, [NDCG @ 10], train=train) for name in ("single", "knn(n_neighbors=5)")]
    >>> comparison = compare(test, both)
    >>> comparison
    Comparison(20 queries, NDCG @ 10: single, knn(n_neighbors=5))
    >>> gain = comparison.difference("knn(n_neighbors=5)", NDCG @ 10)
    >>> gain.paired.wins, gain.paired.losses, gain.p_holm < 0.01
    (10, 0, True)
    """
    check_choice("pairs", pairs, ("baseline", "all"))
    names = [entrant.name for entrant in entrants]
    if not names or len(set(names)) < len(names):
        raise ParameterError(f"entrants must be one or more of different names, got {names}")
    if baseline is not None and baseline not in names:
        raise ParameterError(f"baseline {baseline!r} is no entrant: choose one of {', '.join(map(repr, names))}")
    ordered = sorted(entrants, key=lambda entrant: entrant.name != (baseline or names[0]))
    measures = tuple(ordered[0].evaluation.per_query)
    meetings = [(measure, b, a) for measure in measures for a, b in combinations(ordered, 2)]
    if pairs == "baseline":
        meetings = [meeting for meeting in meetings if meeting[2] is ordered[0]]
    tested, permuted = [], []
    for measure, a, b in meetings:
        values = a.per_query(measure), b.per_query(measure)
        tested.append(compare_paired(*values, confidence=confidence))
        permuted.append(compare_paired(*values, "permutation", n_resamples=n_resamples, seed=seed).p)
    corrected = holm([paired.p for paired in tested]).tolist(), holm(permuted).tolist()
    differences = tuple(
        Difference(a.name, b.name, measure, *figures)
        for (measure, a, b), *figures in zip(meetings, tested, permuted, *corrected, strict=True)
    )
    return Comparison(queries, measures, tuple(ordered), differences)
