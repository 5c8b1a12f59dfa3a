"""Measure rankings query by query, by their difficulty, and the best that a choice among several could give."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.measure.base import Measure, mean_of
from kinrank.measure.lists import RankedLists, Ties, rank


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


# --- oracle bounds: what the best choice among several models for each query would score ------------------------------
#
# The functions take an array of shape (models, queries) with the value of a measure for every model on every query, as
# `Measure.per_query` returns it. A query that the measure excludes is NaN for every model and in the result.


def upper_bound(values: ArrayLike) -> Float64:
    """Return the value of each query with its best model.

    Examples
    --------
    >>> upper_bound([[0.2, 0.9], [0.6, 0.1]]).tolist()
    [0.6, 0.9]
    """
    best: Float64 = by_rank(values)[0]
    return best


def by_rank(values: ArrayLike) -> Float64:
    """Return the values of each query in descending order: row r - 1 has the r-th best model.

    Returns
    -------
    float64 array of shape (models, queries)

    Examples
    --------
    >>> by_rank([[0.2, 0.9], [0.6, 0.1], [0.4, 0.5]]).tolist()
    [[0.6, 0.9], [0.4, 0.5], [0.2, 0.1]]
    """
    return -np.sort(-_checked(values), axis=0)


def rank_curve(values: ArrayLike) -> Float64:
    """Return the mean over queries with the r-th best model of each, for r from 1.

    Examples
    --------
    >>> rank_curve([[0.2, 0.9], [0.6, 0.1], [0.4, 0.5]]).round(2).tolist()
    [0.75, 0.45, 0.15]
    """
    return np.array([mean_of(row) for row in by_rank(values)])


def rank_of(baseline: float, curve: ArrayLike) -> int:
    """Return the largest r for which the r-th best models match a baseline, or 0 if none do.

    Examples
    --------
    >>> rank_of(0.44, [0.75, 0.45, 0.15])
    2
    """
    return int(np.count_nonzero(np.asarray(curve, dtype=np.float64) >= baseline))


def _checked(values: ArrayLike) -> Float64:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not len(table):
        raise DataError(f"values must have one row per model and one column per query, got shape {table.shape}")
    missing = np.isnan(table)
    if np.any(missing.any(axis=0) != missing.all(axis=0)):
        query = int(np.argmax(missing.any(axis=0) != missing.all(axis=0)))
        raise DataError(f"query {query} is NaN for some models only: measure all models on the same queries")
    return table


# --- difficulty of queries, by their number of relevant documents -----------------------------------------------------


LEVELS = ("none", "hard", "normal", "easy")
"""From queries without relevant documents, for which any order scores the same, to queries with many."""


@dataclass(frozen=True)
class LevelMean:
    """The mean of a measure over the queries of one level."""

    queries: int
    """The number of queries."""
    mean: float
    """The mean over the queries that the measure does not exclude; NaN if it excludes all."""


def difficulty_levels(
    y: ArrayLike, offsets: ArrayLike, *, relevant_from: float = 1, hard_below: int = 4, easy_above: int = 20
) -> NDArray[np.str_]:
    """Return the difficulty level of each query.

    Parameters
    ----------
    y
        The grade of each row. The rows of a query are adjacent.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
    relevant_from
        The lowest grade that is relevant.
    hard_below, easy_above
        A query with fewer relevant documents than `hard_below` is hard, one with more than `easy_above` is easy, any
        other is normal. Queries without relevant documents are a level of their own.

    Examples
    --------
    >>> difficulty_levels([1, 0, 1, 1, 0], [0, 2, 4, 5], hard_below=2, easy_above=2).tolist()
    ['hard', 'normal', 'none']
    """
    if not 0 < hard_below <= easy_above + 1:
        raise ParameterError(
            f"hard_below must be from 1 to easy_above + 1, got {hard_below} with easy_above={easy_above}"
        )
    grades, bounds = np.asarray(y, dtype=np.float64), np.asarray(offsets, dtype=np.int64)
    if grades.shape != (bounds[-1],):
        raise DataError(f"y must have one grade per row ({bounds[-1]} by the offsets), got shape {grades.shape}")
    found = np.diff(np.concatenate(([0], np.cumsum(grades >= relevant_from)))[bounds])
    return np.select([found == 0, found < hard_below, found <= easy_above], LEVELS[:3], default=LEVELS[3])


def mean_by_level(values: ArrayLike, levels: ArrayLike) -> dict[str, LevelMean]:
    """Return the mean of a measure for each level that has queries.

    Parameters
    ----------
    values
        One value per query.
    levels
        One level per query.

    Examples
    --------
    >>> mean_by_level([0.2, 0.4, 0.9], ["hard", "hard", "easy"])
    {'hard': LevelMean(queries=2, mean=0.3...), 'easy': LevelMean(queries=1, mean=0.9)}
    """
    measured, level = np.asarray(values, dtype=np.float64), np.asarray(levels)
    if measured.shape != level.shape:
        raise DataError(
            f"values and levels must have one entry per query, got shapes {measured.shape} and {level.shape}"
        )
    return {
        name: LevelMean(int(np.count_nonzero(level == name)), mean_of(measured[level == name]))
        for name in LEVELS
        if np.any(level == name)
    }
