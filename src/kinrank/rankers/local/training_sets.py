"""Judged queries in a form from which a model of any subset can be learned quickly."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.arrays import Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.learn.base import Learner, LinearLearner, pair_weights
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.ranksvm import JudgedPairs, RankSVM
from kinrank.learn.statistics import PairStatistics
from kinrank.rankers.local.statistics_sets import QueryStatistics
from kinrank.rankers.local.training_base import EditableTrainingSet, Shrinkage
from kinrank.store import nest, unnest


class PairTrainingSet(EditableTrainingSet):
    """Rows sorted by grade for RankSVM, and the statistics for its starting point."""

    def __init__(self, learner: RankSVM, rows: JudgedPairs, statistics: PairStatistics) -> None:
        self.learner = learner
        self.rows = rows
        self.statistics = statistics

    @classmethod
    def of(cls, learner: RankSVM, queries: QuerySet) -> Self:
        """Sort the rows and compute the statistics."""
        return cls(learner, JudgedPairs.from_queries(queries), PairStatistics.from_queries(queries))

    def learn(self, index: Int64, weights: Float64, shrinkage: Shrinkage | None = None) -> RankSVM:
        """Take a few Newton steps from the RankRLS solution."""
        model = copy(self.learner)
        prior = None
        if shrinkage is not None:
            model.penalty, prior = shrinkage.combine(self.learner.penalty)
        weight_of_pair = pair_weights(self.pairs[index], self.learner.balance, weights)
        model.fit_pairs(self.rows, index, weight_of_pair, self.statistics.sum(index, weight_of_pair), prior=prior)
        return model

    def add(self, queries: QuerySet) -> None:
        """Append the rows and statistics of further queries."""
        self.rows = JudgedPairs.concat([self.rows, JudgedPairs.from_queries(queries)])
        self.statistics = PairStatistics.concat([self.statistics, PairStatistics.from_queries(queries)])

    def take(self, index: Int64) -> Self:
        """Return a set with the rows and statistics of the queries at some positions only."""
        return type(self)(self.learner, self.rows.take(index), self.statistics[index])

    def get_state(self) -> State:
        """Return the rows and the statistics."""
        return nest(rows=vars(self.rows), statistics=self.statistics.get_state())

    @classmethod
    def from_state(cls, learner: RankSVM, state: State) -> Self:
        """Restore from the arrays of `get_state`."""
        statistics = PairStatistics.from_state(unnest(state, "statistics"))
        return cls(learner, JudgedPairs(**unnest(state, "rows")), statistics)

    @property
    def pairs(self) -> Float64:
        """The number of pairs of each query."""
        return self.statistics.pairs


class RowTrainingSet(EditableTrainingSet):
    """Rows for any other learner, which is fitted on them each time."""

    def __init__(self, learner: Learner, queries: QuerySet) -> None:
        self.learner = learner
        self._set_queries(queries)

    def _set_queries(self, queries: QuerySet) -> None:
        self.queries = queries
        self._pairs = JudgedPairs.from_queries(queries).pairs

    @classmethod
    def of(cls, learner: Learner, queries: QuerySet) -> Self:
        """Keep the queries as they are."""
        return cls(learner, queries)

    def learn(self, index: Int64, weights: Float64, shrinkage: Shrinkage | None = None) -> Learner:
        """Fit the learner on the rows. Shrinkage applies to linear learners only."""
        model: Learner = clone(self.learner)
        if shrinkage is None or not isinstance(model, LinearLearner):
            return model.fit(self.queries[index], query_weight=weights)
        penalty, prior = shrinkage.combine(model.get_params()["penalty"])
        model.set_params(penalty=penalty)
        return model.fit(self.queries[index], query_weight=weights, prior=prior)

    def check(self, queries: QuerySet) -> None:
        """Raise `DataError` if the learner refuses these queries."""
        self.learner.check(queries)

    def add(self, queries: QuerySet) -> None:
        """Append the rows of further queries. A query that was forgotten may come back under its id."""
        self.check(queries)
        start, stop = len(self.queries), len(self.queries) + len(queries)
        both = QuerySet.concat(
            [_only_rows(self.queries, np.arange(start)), _only_rows(queries, np.arange(start, stop))]
        )
        self._set_queries(both.replace(qid=np.concatenate([self.queries.qid, queries.qid])))

    def take(self, index: Int64) -> Self:
        """Return a set with the rows of the queries at some positions only."""
        return type(self)(self.learner, self.queries[index])

    def get_state(self) -> State:
        """Return the rows."""
        rows = _only_rows(self.queries, self.queries.qid).replace(y=self.queries.grades)
        return {**rows.get_state(), "feature_names": np.array(rows.feature_names)}

    @classmethod
    def from_state(cls, learner: Learner, state: State) -> Self:
        """Restore from the arrays of `get_state`."""
        return cls(learner, QuerySet.from_state(state, state["feature_names"].tolist()))

    @property
    def pairs(self) -> Float64:
        """The number of pairs of each query."""
        return self._pairs


def training_set_class(learner: Learner) -> type[Any]:
    """Return the smallest form of training set that a learner can learn from, a class of `EditableTrainingSet`."""
    if isinstance(learner, RankRLS):
        return QueryStatistics
    return PairTrainingSet if isinstance(learner, RankSVM) else RowTrainingSet


def _only_rows(queries: QuerySet, qid: NDArray[Any]) -> QuerySet:
    """Return what learners read, under other ids, so that any two sets of queries can be concatenated."""
    return queries.replace(qid=qid, doc_id=None, query_columns={}, row_order=None)
