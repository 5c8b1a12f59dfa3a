"""Models learned in advance, one per judged query, and the choice among them (Geng et al. 2008, 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numba
import numpy as np
from scipy.sparse import csr_array
from sklearn.base import clone

from kinrank.arrays import Float64, Int64, State
from kinrank.learn.base import Learner, LinearLearner
from kinrank.neighbors.base import Neighborhoods
from kinrank.store import nest, unnest


@dataclass(eq=False, repr=False)
class OfflineModels:
    """The local model h_i of every judged query i, and the neighbors it was learned from."""

    models: list[Learner]
    """h_i, the models."""
    near: Neighborhoods
    """N(q_i), the neighbors that each model was learned from."""
    pairs: Float64
    """|S_q|, the number of pairs of each judged query."""

    @cached_property
    def _models_by_query(self) -> csr_array:
        """For each judged query, the models learned from it.

        This inverted index makes the largest overlap cost k lists instead of a scan over m sets of k.
        """
        n = len(self.models)
        sets = csr_array((np.ones(len(self.near.members), np.int8), self.near.members, self.near.starts), shape=(n, n))
        return sets.T.tocsr()

    def most_overlapping(self, neighbors: Int64) -> int:
        """Return i* of Eq. 1: the first model that shares most pairs with S_N(q), or -1 if none shares any."""
        shared = self.overlaps(neighbors)
        best = int(np.argmax(shared))
        return best if shared[best] > 0 else -1

    def overlaps(self, neighbors: Int64) -> Float64:
        """Return |S_N(q_i) ∩ S_N(q)|, counted in pairs, for every i."""
        shared = np.zeros(len(self.models))
        models = self._models_by_query
        _count_pairs(neighbors, self.pairs, models.indices, models.indptr, shared)
        return shared

    def neighbors_of(self, model: int) -> Int64:
        """Return the judged queries that a model was learned from."""
        return self.near.members[self.near.starts[model] : self.near.starts[model + 1]]

    def get_state(self) -> State:
        """Return plain arrays to save."""
        near = self.near
        sets: State = {"members": near.members, "starts": near.starts, "distances": near.distances, "pairs": self.pairs}
        if isinstance(self.models[0], LinearLearner):
            return sets | {"coef": np.array([m.coef_ for m in self.models if isinstance(m, LinearLearner)])}
        return sets | nest(**{f"model{i}": model.get_state() for i, model in enumerate(self.models)})

    @classmethod
    def from_state(cls, learner: Learner, state: State) -> Self:
        """Restore from the arrays of `get_state`."""
        if "coef" in state:
            models = [learner.with_weights(coef) for coef in state["coef"] if isinstance(learner, LinearLearner)]
        else:
            models = [clone(learner).set_state(unnest(state, f"model{i}")) for i in range(len(state["starts"]) - 1)]
        return cls(models, Neighborhoods(state["members"], state["starts"], state["distances"]), state["pairs"])


@numba.njit(cache=True, nogil=True)
def _count_pairs(neighbors, pairs, models_of, starts, shared):  # type: ignore[no-untyped-def]
    """Add the pairs of each neighbor to every model learned from it."""
    for neighbor in neighbors:
        for at in range(starts[neighbor], starts[neighbor + 1]):
            shared[models_of[at]] += pairs[neighbor]
