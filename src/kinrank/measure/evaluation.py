"""Several measures of one ranking, computed together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from numpy.typing import ArrayLike, NDArray

from kinrank.data.queryset import QuerySet
from kinrank.measure.base import Measure, mean_of
from kinrank.measure.lists import Float, RankedLists, Ties, rank


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """What measures say of one ranking: ``evaluation[NDCG @ 10]`` is a mean, `per_query` has the values.

    Attributes
    ----------
    qid : array of shape (queries,)
        The queries, in the order of the values.
    per_query : mapping of Measure to float64 array of shape (queries,)
        One value per query; NaN where the measure leaves the query out.
    """

    qid: NDArray[Any]
    per_query: Mapping[Measure, Float]

    @property
    def means(self) -> dict[Measure, float]:
        """The mean of every measure over the queries it does not leave out."""
        return {measure: mean_of(values) for measure, values in self.per_query.items()}

    def __getitem__(self, measure: Measure) -> float:
        return mean_of(self.per_query[measure])

    def __repr__(self) -> str:
        means = ", ".join(f"{measure!r}: {mean:.4f}" for measure, mean in self.means.items())
        return f"Evaluation({len(self.qid):,} queries, {means})"


def evaluate(queries: QuerySet, scores: ArrayLike, measures: Iterable[Measure]) -> Evaluation:
    """Measure a ranking of judged queries; measures with one rule for ties share one sort.

    Parameters
    ----------
    queries
        Judged queries.
    scores
        One score per row of `queries`, in its row order; higher is better.
    measures
        What to measure.

    Examples
    --------
    >>> from kinrank.measure import AP, NDCG
    >>> queries = QuerySet.from_arrays([[3.0], [2.0], [1.0]], y=[0, 1, 1], qid=["a", "a", "b"])
    >>> evaluation = evaluate(queries, queries.X[:, 0], [NDCG @ 10, AP])
    >>> evaluation
    Evaluation(2 queries, NDCG @ 10: 0.8155, AP: 0.7500)
    >>> evaluation[AP], evaluation.per_query[AP].tolist()
    (0.75, [0.5, 1.0])
    """
    ranked: dict[Ties, RankedLists] = {}
    values: dict[Measure, Float] = {}
    for measure in measures:
        if measure.ties not in ranked:
            ranked[measure.ties] = rank(
                scores, queries.grades, queries.offsets, measure.ties, queries.doc_id, queries.qid
            )
        values[measure] = measure.of_lists(ranked[measure.ties])
    return Evaluation(queries.qid, MappingProxyType(values))
