"""Models learned in advance, one per judged query, and how a new query finds its own (Geng et al. 2008, 3.3)."""

from __future__ import annotations

from functools import cached_property
from typing import Self

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.base import clone

from kinrank.arrays import Float64, Int64, State
from kinrank.learn.base import Learner, LinearLearner
from kinrank.rankers.local.neighborhoods import Neighborhoods
from kinrank.store import nest, unnest


class OfflineModels:
    """The local model h_i of every judged query i, and whose judgments each was learned from.

    Parameters
    ----------
    models
        h_i.
    near
        N(q_i).
    pairs
        |S_q|, the number of pairs of each judged query.
    """

    def __init__(self, models: list[Learner], near: Neighborhoods, pairs: Float64) -> None:
        self.models = models
        self.near = near
        self.pairs = pairs

    @cached_property
    def _taught(self) -> csr_array:
        """Inverted sets: for each judged query the models it taught.

        Finding the largest overlap then costs k lists, not a scan over m sets of k.
        """
        n = len(self.models)
        sets = csr_array((np.ones(len(self.near.members), np.int8), self.near.members, self.near.starts), shape=(n, n))
        return sets.T.tocsr()

    def most_overlapping(self, neighbors: Int64) -> int:
        """i* of Eq. 1: the model that shares most pairs with S_N(q), the first of equals; -1 where none shares any."""
        shared = self.overlaps(neighbors)
        best = int(np.argmax(shared))
        return best if shared[best] > 0 else -1

    def overlaps(self, neighbors: Int64) -> Float64:
        """|S_N(q_i) ∩ S_N(q)| for every i, counted in pairs."""
        shared = np.zeros(len(self.models))
        _count(neighbors, self.pairs, self._taught.indices, self._taught.indptr, shared)
        return shared

    def neighbors_of(self, model: int) -> Int64:
        """The judged queries that a model was learned from."""
        return self.near.members[self.near.starts[model] : self.near.starts[model + 1]]

    def get_state(self) -> State:
        """As plain arrays."""
        near = self.near
        sets: State = {"members": near.members, "starts": near.starts, "distances": near.distances, "pairs": self.pairs}
        if isinstance(self.models[0], LinearLearner):
            return sets | {"coef": np.array([m.coef_ for m in self.models if isinstance(m, LinearLearner)])}
        return sets | nest(**{f"model{i}": model.get_state() for i, model in enumerate(self.models)})

    @classmethod
    def from_state(cls, learner: Learner, state: State) -> Self:
        """What `get_state` gave, for models of one kind of learner."""
        if "coef" in state:
            models = [learner.with_weights(coef) for coef in state["coef"] if isinstance(learner, LinearLearner)]
        else:
            models = [clone(learner).set_state(unnest(state, f"model{i}")) for i in range(len(state["starts"]) - 1)]
        return cls(models, Neighborhoods(state["members"], state["starts"], state["distances"]), state["pairs"])


@numba.njit(cache=True, nogil=True)
def _count(neighbors, pairs, models_of, starts, shared):  # type: ignore[no-untyped-def]
    """Add the pairs of each neighbor to every model it taught."""
    for neighbor in neighbors:
        for at in range(starts[neighbor], starts[neighbor + 1]):
            shared[models_of[at]] += pairs[neighbor]


def change_ratio(first: NDArray[np.int64], second: NDArray[np.int64], pairs: Float64) -> float:
    """γ = (p1 + p2 - 2Δ) / min(p1, p2): how different two training sets are (Geng et al. 2008, 3.3.4).

    Parameters
    ----------
    first, second
        The judged queries of each set.
    pairs
        The number of pairs of every judged query.

    Examples
    --------
    >>> change_ratio(np.array([0, 1]), np.array([1, 2]), np.array([10.0, 10.0, 20.0]))
    1.5
    """
    one, other = float(pairs[first].sum()), float(pairs[second].sum())
    shared = float(pairs[np.intersect1d(first, second)].sum())
    smaller = min(one, other)
    return (one + other - 2 * shared) / smaller if smaller > 0 else 0.0


def loss_difference_bound(ratio: float, penalty: float, radius: float) -> float:
    """Theorem 1 for RankSVM: no pair's loss differs by more than κ²/λ · γ between two models.

    Parameters
    ----------
    ratio
        γ, from `change_ratio`.
    penalty
        λ.
    radius
        κ: no difference of two candidates' feature vectors is longer.

    Examples
    --------
    >>> loss_difference_bound(0.1, penalty=0.01, radius=1.0)
    10.0
    """
    return radius**2 / penalty * ratio
