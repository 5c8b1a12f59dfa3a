"""Judged queries in a form from which a model of any subset can be learned quickly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.arrays import Float32, Float64, GrowingRows, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.kin.indexes import NeighborIndex
from kinrank.kin.indexes.base import Neighborhoods
from kinrank.learn.base import Learner, LinearLearner, pair_weights
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.ranksvm import JudgedPairs, RankSVM
from kinrank.learn.statistics import PairStatistics
from kinrank.store import nest, unnest


@dataclass(frozen=True)
class Shrinkage:
    """A penalty μ/2 |w - w0|² in addition to the learner's own λ/2 |w|².

    The two equal one penalty λ + μ with the prior μ w0 / (λ + μ). Because λ keeps its own term, a local model of all
    queries equals the global model w0 for any strength μ: w0 already minimizes the other terms.
    """

    strength: float
    target: Float64

    def combine(self, penalty: float) -> tuple[float, Float64]:
        """Return the penalty and the prior that equal this shrinkage and the learner's own penalty together."""
        total = penalty + self.strength
        return total, self.target * (self.strength / total)


class TrainingSet(ABC):
    """The judged queries of a local ranker, at numbered positions."""

    @abstractmethod
    def learn(self, index: Int64, weights: Float64, shrinkage: Shrinkage | None = None) -> Learner:
        """Learn a model from the positions in `index`, weighted by `weights`."""

    def learn_each(
        self, index: Int64, starts: Int64, weights: Float64, shrinkage: Shrinkage | None = None
    ) -> list[Learner]:
        """Learn a model from each set of positions ``index[starts[i]:starts[i + 1]]``."""
        return [self.learn(index[a:b], weights[a:b], shrinkage) for a, b in pairwise(starts.tolist())]

    @abstractmethod
    def get_state(self) -> State:
        """Return plain arrays to save."""

    @property
    @abstractmethod
    def pairs(self) -> Float64:
        """The number of pairs at each position."""

    @property
    def counts(self) -> Float64:
        """The number of judged queries at each position."""
        return np.ones(len(self.pairs))

    def nearest(self, index: NeighborIndex, points: Float32, k: int) -> Neighborhoods:
        """Return the positions of the `k` judged queries nearest to each point, or of all if there are fewer."""
        return Neighborhoods.nearest(index, points, min(k, index.n_points))


class EditableTrainingSet(TrainingSet):
    """A training set with one position per judged query, to which queries can be added and removed."""

    def check(self, queries: QuerySet) -> None:
        """Raise `DataError` if `add` cannot learn from these queries."""
        PairStatistics.from_queries(queries)

    @abstractmethod
    def add(self, queries: QuerySet) -> None:
        """Append queries."""

    def forget(self, index: Int64) -> None:
        """Leave the queries at some positions out of the model of all; their positions stay."""

    @abstractmethod
    def take(self, index: Int64) -> Self:
        """Return a set with the queries at some positions only."""

    def learn_all(self, index: Callable[[], Int64]) -> Learner:
        """Learn a model from all queries that are not forgotten; `index` returns their positions."""
        positions = index()
        return self.learn(positions, np.ones(len(positions)))


# --- training sets of pair statistics: a model is a sum and a solve ---------------------------------------------------


class StatisticsTrainingSet(TrainingSet):
    """Pair statistics for RankRLS: a model is a sum and a solve, and no rows are kept."""

    def __init__(self, learner: RankRLS, statistics: PairStatistics, signs: NDArray[np.int8] | None = None) -> None:
        self.learner = learner
        self.statistics = statistics
        self.signs = signs

    @abstractmethod
    def pair_weights(self, index: Int64, weights: Float64 | None) -> Float64:
        """Return the weight of one pair at each of these positions."""

    def learn(self, index: Int64, weights: Float64, shrinkage: Shrinkage | None = None) -> RankRLS:
        """Sum the statistics and solve."""
        return self.learn_each(index, np.array([0, len(index)]), weights, shrinkage)[0]

    def learn_each(
        self, index: Int64, starts: Int64, weights: Float64, shrinkage: Shrinkage | None = None
    ) -> list[RankRLS]:
        """Sum and solve for all sets in compiled code."""
        sums = self.sum_sets(index, starts, self.pair_weights(index, weights))
        return [self.learner.with_weights(solved) for solved in self.solve(sums, shrinkage)]

    def sum_sets(self, index: Int64, starts: Int64, weights: Float64) -> PairStatistics:
        """Return the weighted sum of each set of positions."""
        return self.statistics.sums(index, starts, weights)

    def solve(self, sums: PairStatistics, shrinkage: Shrinkage | None = None) -> Float64:
        """Return the model weights for each row of summed statistics, with the learner's penalty and signs."""
        penalty = self.learner.penalty
        penalty, prior = (penalty, None) if shrinkage is None else shrinkage.combine(penalty)
        return sums.solve(penalty, prior, self.signs)

    def prefix_sums(self, index: Int64, counts: Int64) -> PairStatistics:
        """Return the sums over the first ``counts[i]`` queries in `index`, for every i, in one pass."""
        return self.statistics.prefix_sums(index, counts, self.pair_weights(index, None))

    def get_state(self) -> State:
        """Return the packed statistics, and the signs if there are any."""
        signs = {} if self.signs is None else {"signs": self.signs}
        return self.statistics.get_state() | signs

    @property
    def pairs(self) -> Float64:
        """The number of pairs at each position."""
        return self.statistics.pairs


class _AddedStatistics(NamedTuple):
    """The statistics of added queries; the pairs of all queries, so that they can be looked up at once."""

    gram: GrowingRows
    moment: GrowingRows
    pairs: GrowingRows

    @classmethod
    def after(cls, fitted: PairStatistics) -> Self:
        return cls(GrowingRows(fitted.gram[:0]), GrowingRows(fitted.moment[:0]), GrowingRows(fitted.pairs))

    def append(self, new: PairStatistics) -> _AddedStatistics:
        return _AddedStatistics(
            self.gram.append(new.gram), self.moment.append(new.moment), self.pairs.append(new.pairs)
        )

    def statistics(self, n_fitted: int) -> PairStatistics:
        return PairStatistics(self.gram.rows, self.moment.rows, self.pairs.rows[n_fitted:])


class _QueryStatistics(StatisticsTrainingSet, EditableTrainingSet):
    """The pair statistics of every judged query, those added later in memory of their own."""

    _added: _AddedStatistics | None = None
    _total: PairStatistics | None = None  # weighted sum of all, when it is needed

    @classmethod
    def of(cls, learner: RankRLS, queries: QuerySet) -> Self:
        """Compute the statistics of each query."""
        return cls(learner, PairStatistics.from_queries(queries), learner.signs(queries.feature_names))

    def pair_weights(self, index: Int64, weights: Float64 | None) -> Float64:
        """Return the weight of one pair of each query, as balanced by the learner."""
        return pair_weights(self.pairs[index], self.learner.balance, weights)

    def add(self, queries: QuerySet) -> None:
        """Append the statistics of further queries, without copying those that are there."""
        new = PairStatistics.from_queries(queries)
        total = self._sum_of_all()
        added = self._added or _AddedStatistics.after(self.statistics)
        self._added = added.append(new)
        self._total = total + new.sum(weights=self._weigh(new.pairs))

    def forget(self, index: Int64) -> None:
        """Subtract the statistics of the queries at some positions from the sum of all."""
        self._total = self._sum_of_all() - self.sum_sets(
            index, np.array([0, len(index)]), self._weigh(self.pairs[index])
        )

    def take(self, index: Int64) -> Self:
        """Return a set with the statistics of the queries at some positions only."""
        return type(self)(self.learner, self._everything()[index], self.signs)

    def learn_all(self, index: Callable[[], Int64]) -> RankRLS:  # noqa: ARG002 - the sum of all is known
        """Learn a model from the sum of all statistics."""
        return self.learner.with_weights(self.solve(self._sum_of_all())[0])

    def _sum_of_all(self) -> PairStatistics:
        if self._total is None:
            self._total = self.statistics.sum(weights=self._weigh(self.statistics.pairs))
        return self._total

    def _weigh(self, pairs: Float64) -> Float64:
        return pair_weights(pairs, self.learner.balance, None)

    def prefix_sums(self, index: Int64, counts: Int64) -> PairStatistics:
        """Return the sums over the first ``counts[i]`` queries in `index`, for every i, in one pass."""
        return self._everything().prefix_sums(index, counts, self.pair_weights(index, None))

    def sum_sets(self, index: Int64, starts: Int64, weights: Float64) -> PairStatistics:
        """Return the weighted sum of each set of positions."""
        if self._added is None:
            return super().sum_sets(index, starts, weights)
        n = len(self.statistics)
        added = index >= n
        ends = np.append(0, np.cumsum(added))[starts]  # where the added members of each set begin
        first = self.statistics.sums(index[~added], starts - ends, weights[~added])
        return first + self._added.statistics(n).sums(index[added] - n, ends, weights[added])

    def _everything(self) -> PairStatistics:
        if self._added is None:
            return self.statistics
        return PairStatistics.concat([self.statistics, self._added.statistics(len(self.statistics))])

    def get_state(self) -> State:
        """Return the packed statistics, and the signs if there are any."""
        return super().get_state() if self._added is None else self.take(np.arange(len(self.pairs))).get_state()

    @property
    def pairs(self) -> Float64:
        """The number of pairs of each query."""
        return self.statistics.pairs if self._added is None else self._added.pairs.rows

    @classmethod
    def from_state(cls, learner: RankRLS, state: State) -> Self:
        """Restore from the arrays of `get_state`."""
        return cls(learner, PairStatistics.from_state(state), state.get("signs"))


# --- training sets of rows, for learners that statistics are not enough for -------------------------------------------


class _PairTrainingSet(EditableTrainingSet):
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


class _RowTrainingSet(EditableTrainingSet):
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
        return _QueryStatistics
    return _PairTrainingSet if isinstance(learner, RankSVM) else _RowTrainingSet


def _only_rows(queries: QuerySet, qid: NDArray[Any]) -> QuerySet:
    """Return what learners read, under other ids, so that any two sets of queries can be concatenated."""
    return queries.replace(qid=qid, doc_id=None, query_columns={}, row_order=None)
