"""Judged queries remembered so that a model of any few of them can be learned at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.arrays import Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.learn.base import Learner, LinearLearner, pair_weights
from kinrank.learn.pairs import JudgedPairs
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.ranksvm import RankSVM
from kinrank.learn.statistics import PairStatistics
from kinrank.store import nest, unnest


@dataclass(frozen=True)
class Pull:
    """Shrinkage μ/2 |w - w0|² beside the learner's own λ/2 |w|².

    The two together are one penalty λ + μ with the prior μ w0 / (λ + μ). Kept apart like this, a local model of
    all queries is the global model whatever the strength, since w0 already minimizes the rest.
    """

    strength: float
    to: Float64

    def applied(self, penalty: float) -> tuple[float, Float64]:
        """Penalty and prior of the sum."""
        total = penalty + self.strength
        return total, self.to * (self.strength / total)


class Memory(ABC):
    """What a local ranker keeps of its judged queries."""

    @abstractmethod
    def learn(self, index: Int64, weights: Float64, pull: Pull | None = None) -> Learner:
        """A model of the queries at `index`, each weighing `weights`, pulled to a prior where one is given."""

    def learn_each(self, index: Int64, starts: Int64, weights: Float64, pull: Pull | None = None) -> list[Learner]:
        """A model of every set of queries ``index[starts[i]:starts[i + 1]]``."""
        return [self.learn(index[a:b], weights[a:b], pull) for a, b in pairwise(starts.tolist())]

    @abstractmethod
    def get_state(self) -> State:
        """As plain arrays."""

    @property
    @abstractmethod
    def pairs(self) -> Float64:
        """How many pairs there are at each position."""

    @property
    def counts(self) -> Float64:
        """How many judged queries there are at each position."""
        return np.ones(len(self.pairs))


class QueryMemory(Memory):
    """A memory with one position per judged query, so that each can come and go."""

    @abstractmethod
    def add(self, queries: QuerySet) -> None:
        """Remember further queries; they take the positions after the last."""

    @abstractmethod
    def remove(self, index: Int64) -> None:
        """Forget queries; later ones move up."""


class SummedMemory(Memory):
    """For RankRLS: a model is a sum and a solve, and no row needs to be kept."""

    def __init__(self, learner: RankRLS, statistics: PairStatistics, signs: NDArray[np.int8] | None = None) -> None:
        self.learner = learner
        self.statistics = statistics
        self.signs = signs

    @abstractmethod
    def pair_weights(self, index: Int64, weights: Float64 | None) -> Float64:
        """What one pair at each of these positions weighs."""

    def learn(self, index: Int64, weights: Float64, pull: Pull | None = None) -> RankRLS:
        """Sum the statistics and solve."""
        return self.learn_each(index, np.array([0, len(index)]), weights, pull)[0]

    def learn_each(self, index: Int64, starts: Int64, weights: Float64, pull: Pull | None = None) -> list[RankRLS]:
        """Sum and solve, set after set without leaving compiled code."""
        sums = self.statistics.sums(index, starts, self.pair_weights(index, weights))
        return [self.learner.with_weights(solved) for solved in self.solve(sums, pull)]

    def solve(self, sums: PairStatistics, pull: Pull | None = None) -> Float64:
        """The weights of each row of summed statistics, with the penalty and the signs of the learner."""
        penalty, prior = (self.learner.penalty, None) if pull is None else pull.applied(self.learner.penalty)
        return sums.solve(penalty, prior, self.signs)

    def prefix_sums(self, index: Int64, counts: Int64) -> PairStatistics:
        """The sums over the nearest ``counts[i]`` queries, for every i in one pass; positions are nearest first."""
        return self.statistics.prefix_sums(index, counts, self.pair_weights(index, None))

    def get_state(self) -> State:
        """The packed statistics, and the signs where there are any."""
        signs = {} if self.signs is None else {"signs": self.signs}
        return self.statistics.get_state() | signs

    @property
    def pairs(self) -> Float64:
        """How many pairs there are at each position."""
        return self.statistics.pairs


class StatisticsMemory(SummedMemory, QueryMemory):
    """The statistics of every judged query."""

    @classmethod
    def of(cls, learner: RankRLS, queries: QuerySet) -> Self:
        """The statistics of each query."""
        return cls(learner, PairStatistics.from_queries(queries), learner.signs(queries.feature_names))

    def pair_weights(self, index: Int64, weights: Float64 | None) -> Float64:
        """As the learner balances pairs and queries."""
        return pair_weights(self.pairs[index], self.learner.balance, weights)

    def add(self, queries: QuerySet) -> None:
        """One block of statistics more."""
        self.statistics = PairStatistics.concat([self.statistics, PairStatistics.from_queries(queries)])

    def remove(self, index: Int64) -> None:
        """Their statistics less."""
        self.statistics = self.statistics[np.delete(np.arange(len(self.statistics)), index)]

    @classmethod
    def from_state(cls, learner: RankRLS, state: State) -> Self:
        """What `get_state` gave."""
        return cls(learner, PairStatistics.from_state(state), state.get("signs"))


class PairsMemory(QueryMemory):
    """For RankSVM: rows as well, and the statistics to start from."""

    def __init__(self, learner: RankSVM, rows: JudgedPairs, statistics: PairStatistics) -> None:
        self.learner = learner
        self.rows = rows
        self.statistics = statistics

    @classmethod
    def of(cls, learner: RankSVM, queries: QuerySet) -> Self:
        """Rows sorted by grade, and statistics."""
        return cls(learner, JudgedPairs.from_queries(queries), PairStatistics.from_queries(queries))

    def learn(self, index: Int64, weights: Float64, pull: Pull | None = None) -> RankSVM:
        """A few Newton steps from the RankRLS solution."""
        model = copy(self.learner)
        prior = None
        if pull is not None:
            model.penalty, prior = pull.applied(self.learner.penalty)
        each = pair_weights(self.pairs[index], self.learner.balance, weights)
        model.fit_pairs(self.rows, index, each, self.statistics.sum(index, each), prior=prior)
        return model

    def add(self, queries: QuerySet) -> None:
        """Rows and statistics more."""
        self.rows = JudgedPairs.concat([self.rows, JudgedPairs.from_queries(queries)])
        self.statistics = PairStatistics.concat([self.statistics, PairStatistics.from_queries(queries)])

    def remove(self, index: Int64) -> None:
        """Rows and statistics less."""
        kept = np.delete(np.arange(len(self.statistics)), index)
        self.rows = self.rows.take(kept)
        self.statistics = self.statistics[kept]

    def get_state(self) -> State:
        """Rows and statistics."""
        rows: State = {
            "X": self.rows.X,
            "offsets": self.rows.offsets,
            "lower": self.rows.lower,
            "pairs": self.rows.pairs,
        }
        return nest(rows=rows, statistics=self.statistics.get_state())

    @classmethod
    def from_state(cls, learner: RankSVM, state: State) -> Self:
        """What `get_state` gave."""
        statistics = PairStatistics.from_state(unnest(state, "statistics"))
        return cls(learner, JudgedPairs(**unnest(state, "rows")), statistics)

    @property
    def pairs(self) -> Float64:
        """How many pairs each query has."""
        return self.statistics.pairs


class RowsMemory(QueryMemory):
    """For any other learner: the judged rows, learned from anew each time."""

    def __init__(self, learner: Learner, queries: QuerySet) -> None:
        self.learner = learner
        self._keep(queries)

    def _keep(self, queries: QuerySet) -> None:
        self.queries = queries
        self._pairs = JudgedPairs.from_queries(queries).pairs.astype(np.float64)

    @classmethod
    def of(cls, learner: Learner, queries: QuerySet) -> Self:
        """The rows as they are."""
        return cls(learner, queries)

    def learn(self, index: Int64, weights: Float64, pull: Pull | None = None) -> Learner:
        """Fit on the rows; a learner that is not linear cannot be pulled."""
        model: Learner = clone(self.learner)
        if pull is None or not isinstance(model, LinearLearner):
            return model.fit(self.queries[index], query_weight=weights)
        penalty, prior = pull.applied(model.get_params()["penalty"])
        model.set_params(penalty=penalty)
        return model.fit(self.queries[index], query_weight=weights, prior=prior)

    def add(self, queries: QuerySet) -> None:
        """Rows more."""
        self._keep(QuerySet.concat([_bare(self.queries), _bare(queries)]))

    def remove(self, index: Int64) -> None:
        """Rows less."""
        self._keep(self.queries[np.delete(np.arange(len(self.queries)), index)])

    def get_state(self) -> State:
        """The rows."""
        return {
            "X": self.queries.X,
            "y": self.queries.grades,
            "offsets": self.queries.offsets,
            "qid": self.queries.qid,
            "feature_names": np.array(self.queries.feature_names),
        }

    @classmethod
    def from_state(cls, learner: Learner, state: State) -> Self:
        """What `get_state` gave."""
        names = tuple(state["feature_names"].tolist())
        return cls(learner, QuerySet(state["X"], state["y"], state["offsets"], state["qid"], feature_names=names))

    @property
    def pairs(self) -> Float64:
        """How many pairs each query has."""
        return self._pairs


def memory_class(learner: Learner) -> type[StatisticsMemory | PairsMemory | RowsMemory]:
    """The leanest memory that serves a learner."""
    if isinstance(learner, RankRLS):
        return StatisticsMemory
    return PairsMemory if isinstance(learner, RankSVM) else RowsMemory


def remember(learner: Learner, queries: QuerySet) -> QueryMemory:
    """Remember judged queries for a learner."""
    made: Any = memory_class(learner)
    memory: QueryMemory = made.of(learner, queries)
    return memory


def restore(learner: Learner, state: State) -> QueryMemory:
    """The memory that `get_state` was asked of."""
    made: Any = memory_class(learner)
    memory: QueryMemory = made.from_state(learner, state)
    return memory


def _bare(queries: QuerySet) -> QuerySet:
    """Queries without what no learner reads, so that any two sets join."""
    return QuerySet(queries.X, queries.y, queries.offsets, queries.qid, feature_names=queries.feature_names)
