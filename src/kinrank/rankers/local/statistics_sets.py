"""Training sets of pair statistics: a model is a sum and a solve."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.growing import GrowingRows
from kinrank.learn.base import pair_weights
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.statistics import PairStatistics
from kinrank.rankers.local.training_base import EditableTrainingSet, Shrinkage, TrainingSet


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


class QueryStatistics(StatisticsTrainingSet, EditableTrainingSet):
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
