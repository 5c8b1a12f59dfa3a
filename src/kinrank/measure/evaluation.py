"""Measure rankings query by query."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.measure.base import Measure, RankedLists, Ties, mean_of, rank


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The values of measures for one ranking; ``evaluation[NDCG @ 10]`` is the mean."""

    qid: NDArray[Any]
    """The query ids, in the order of the values; shape (queries,)."""
    per_query: Mapping[Measure, Float64]
    """One value per query; NaN for queries that the measure excludes; shape (queries,)."""

    @property
    def means(self) -> dict[Measure, float]:
        """The mean of each measure over the queries that it does not exclude."""
        return {measure: mean_of(values) for measure, values in self.per_query.items()}

    def __getitem__(self, measure: Measure) -> float:
        return mean_of(self.per_query[measure])

    def __repr__(self) -> str:
        means = ", ".join(f"{measure!r}: {mean:.4f}" for measure, mean in self.means.items())
        return f"Evaluation({len(self.qid):,} queries, {means})"


def evaluate(queries: QuerySet, scores: ArrayLike, measures: Iterable[Measure]) -> Evaluation:
    """Compute measures of a ranking of judged queries, sorting once per rule for ties.

    Parameters
    ----------
    queries
        Judged queries. Rows of weight 0 are left out of the lists.
    scores
        One score per row of `queries`; higher is better.
    measures
        The measures to compute.

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
    values: dict[Measure, Float64] = {}
    for measure in measures:
        if measure.ties not in ranked:
            ranked[measure.ties] = rank(
                scores,
                queries.grades,
                queries.offsets,
                measure.ties,
                queries.doc_id,
                queries.qid,
                queries.sample_weight,
            )
        values[measure] = measure.of_lists(ranked[measure.ties])
    return Evaluation(queries.qid, MappingProxyType(values))
