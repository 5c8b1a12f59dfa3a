"""Tree models trained by several workers together: LightGBM's data-parallel learner through Ray Train.

Each worker holds whole queries: those of every n-th block. Trees are trained in rounds. After a round, each worker
keeps the model so far in the job folder, and a round always starts from there, whether a worker has failed or not. So
the model depends on the number of workers and on the data, but not on failures.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.base import clone

from kinrank.arrays import Float64, Int64, State
from kinrank.errors import DamagedFolderError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.parallel import TaskCost, start_measuring
from kinrank.rankers.kin.trees import BagTraining
from kinrank.scale.executors import RayCluster
from kinrank.scale.folder import JobFolder

ROUNDS = 6
"""Number of rounds of a tree model. At most the trees of one round are lost if a worker dies."""

# Lines of a model text that depend on where it was trained.
_NETWORK = re.compile(r"^\[(machines|local_listen_port|num_machines|tree_learner|pre_partition): .*\]\n", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class DistributedTrees:
    """Trains one tree model after the other, each by all workers together."""

    cluster: RayCluster
    """The Ray cluster."""
    n_workers: int
    """Number of workers that train a model together; fewer if one of them would have no query to learn from."""
    folder: JobFolder
    """The job folder, which all workers share."""

    def __call__(self, bag: BagTraining, item: tuple[int, int]) -> TaskCost:
        """Train and keep the member of a repeat that leaves out a fold."""
        cost = start_measuring()
        repeat, held_out = item
        member = _MemberInRounds(bag, repeat, held_out, n_sharing(bag.folds[repeat], held_out, self.n_workers))
        path = self.folder.path
        storage = f"{path if '://' in path else os.path.abspath(path)}/ray"
        self.cluster.run_together(member.train, member.n_workers, storage)
        bag.keep_member(repeat, held_out, *member.result())
        return cost()


def n_sharing(folds: Sequence[Int64], held_out: int, most: int) -> int:
    """Return the largest number of workers, each with every n-th block, that all have queries to learn from.

    Parameters
    ----------
    folds
        The fold of each query of each block.
    held_out
        The fold whose queries no worker learns from.
    most
        Upper limit.

    Examples
    --------
    >>> n_sharing([np.array([0, 0]), np.array([0, 1]), np.array([1, 1])], held_out=0, most=3)
    2
    """
    learns = np.array([bool(np.any(fold != held_out)) for fold in folds])
    return next((n for n in range(min(most, len(folds)), 1, -1) if all(learns[r::n].any() for r in range(n))), 1)


@dataclass(frozen=True, eq=False)
class _MemberInRounds:
    """A member that is trained in rounds."""

    bag: BagTraining
    repeat: int
    held_out: int
    n_workers: int

    @property
    def rounds(self) -> list[int]:
        """The number of trees of each round."""
        n_trees = self.bag.settings.n_trees
        size = -(-n_trees // ROUNDS)
        return [min(size, n_trees - first) for first in range(0, n_trees, size)]

    def train(self, rank: int, network: dict[str, object], share: Callable[[int], int]) -> None:
        """Train with a part of the queries, from the last finished round on. All workers do this at the same time."""
        first = share(self._n_finished())
        if first == len(self.rounds):
            return
        blocks = range(rank, len(self.bag.folds[self.repeat]), self.n_workers)
        seen, out = self.bag.split(self.repeat, self.held_out, blocks)
        fitted, curve = self._read(first - 1, rank) if first else (None, np.empty(0))
        connected = None
        for number, n_trees in list(enumerate(self.rounds))[first:]:
            # A port cannot be bound again at once, so the network stays open: as long as the booster that opened it.
            network = network if connected is None else {"num_machines": self.n_workers}
            settings = self._settings(number, n_trees, network)
            fitted = settings.fit(seen, validation=out if len(out) else None, start=fitted)
            connected = connected or fitted.booster_
            curve = np.append(curve, fitted.validation_ndcg_ if len(out) else np.zeros(n_trees))
            text = _NETWORK.sub("", fitted.text).encode()
            state: State = {
                "booster": np.frombuffer(text, np.uint8),
                "curve": curve,
                "n_queries": np.array(len(out)),
            }
            self.bag.store.write(self._name(number, rank), state)
            fitted = self._model(state)
        if connected is not None:
            connected.free_network()

    def result(self) -> tuple[LambdaMART, Float64]:
        """Return the trained model, and its NDCG@10 on the left-out queries of all workers after each tree."""
        last = len(self.rounds) - 1
        states = [self.bag.store.read(self._name(last, rank)) for rank in range(self.n_workers)]
        curve = np.average(
            [state["curve"] for state in states], axis=0, weights=[state["n_queries"] for state in states]
        )
        return self._model(states[0]), curve

    def _settings(self, number: int, n_trees: int, network: dict[str, object]) -> LambdaMART:
        settings: LambdaMART = clone(self.bag.settings)
        # Whole queries of a worker stay there (pre_partition). Each round draws other features.
        params = {**(settings.params or {}), **network, "tree_learner": "data", "pre_partition": True}
        seed = self.bag.seed_of(self.repeat, self.held_out) + len(self.bag.members) * number
        settings.set_params(n_trees=n_trees, seed=seed, params=params)
        return settings

    def _n_finished(self) -> int:
        """Return the number of rounds that all workers have kept."""
        for number in reversed(range(len(self.rounds))):
            try:
                for rank in range(self.n_workers):
                    self._read(number, rank)
            except DamagedFolderError:
                continue
            return number + 1
        return 0

    def _read(self, number: int, rank: int) -> tuple[LambdaMART, Float64]:
        state = self.bag.store.read(self._name(number, rank))
        return self._model(state), state["curve"]

    def _model(self, state: State) -> LambdaMART:
        model: LambdaMART = clone(self.bag.settings).set_state(state)
        return model

    def _name(self, number: int, rank: int) -> str:
        return f"round-{self.repeat}-{self.held_out}-{number}-{rank}"
