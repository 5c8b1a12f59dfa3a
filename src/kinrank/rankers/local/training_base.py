"""What training sets have in common: judged queries at numbered positions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.learn.base import Learner
from kinrank.learn.statistics import PairStatistics
from kinrank.neighbors import NeighborIndex
from kinrank.rankers.local.neighborhoods import Neighborhoods


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
