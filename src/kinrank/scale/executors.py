"""Ray: an executor on a cluster, and trees that its workers train together."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, TypeVar

import numpy as np
from sklearn.base import clone

from kinrank.arrays import Float64, Int64, State
from kinrank.errors import DamagedFolderError, JobError, ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.parallel import TaskCost, start_measuring
from kinrank.rankers.kin.trees import BagTraining
from kinrank.registry import import_extra
from kinrank.scale.sum_tree import JobFolder

T = TypeVar("T")
R = TypeVar("R")

Together = Callable[[int, dict[str, Any], Callable[[int], int]], None]
"""What a worker does, together with others: see `RayCluster.run_together`."""


@dataclass(eq=False, repr=False)
class RayCluster:
    """Runs tasks on a Ray cluster.

    If a worker or node dies, its item is retried elsewhere. Only small results pass through the driver, and at most
    `pending_per_core` items per core are submitted at a time, so memory use depends on the number of workers only.
    """

    address: str = "auto"
    """Address for `ray.init`, such as ``"10.0.0.1:6379"``. ``"local"`` starts a cluster on this machine's cores;
    ``"auto"`` uses the open session, or else the cluster that this machine is a node of.
    """
    _: KW_ONLY
    max_retries: int = 20
    """How often an item is retried if its worker or node dies."""
    pending_per_core: int = 2
    """Items submitted at a time, per core."""

    def __post_init__(self) -> None:
        self._opened = False

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened:  # leave a session open that was open before
            import_extra("ray", "ray").shutdown()
            self._opened = False

    def _connect(self) -> Any:
        ray = import_extra("ray", "ray")
        if ray.is_initialized():
            self._check_session(ray)
            return ray
        try:
            _check_reachable(self.address)
            ray.init(self.address, log_to_driver=False, logging_level="warning", configure_logging=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise JobError(
                f"no Ray cluster at {self.address!r} ({error}): start one, or use 'local' for this machine's cores"
            ) from None
        self._opened = True
        return ray

    def _check_session(self, ray: Any) -> None:
        if self._opened or self.address == "auto":
            return
        session = ray.get_runtime_context().gcs_address
        if session != self.address:
            raise ParameterError(
                f"cannot connect to {self.address!r} while a session is open at {session!r}: use that session with "
                "RayCluster(), or close it with ray.shutdown()"
            )

    def map_unordered(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """Yield results as they finish."""
        ray = self._connect()
        shared = ray.put(function)  # sent once; workers map large arrays instead of copying them
        call = ray.remote(num_cpus=1, max_retries=self.max_retries)(_apply)
        pending: dict[Any, int] = {}
        submitted = 0
        try:
            while submitted < len(items) or pending:
                cores = max(1, int(ray.cluster_resources().get("CPU", 1)))  # nodes come and go
                while submitted < len(items) and len(pending) < self.pending_per_core * cores:
                    pending[call.remote(shared, items[submitted])] = submitted
                    submitted += 1
                for done in ray.wait(list(pending), num_returns=1, timeout=10)[0]:
                    position = pending.pop(done)
                    yield position, self._result(ray, done, items[position])
        finally:
            for task in pending:
                ray.cancel(task, force=False)

    def run_together(self, function: Together, n_workers: int, storage: str) -> None:
        """Run a function in several workers at the same time, whose LightGBM models are trained together.

        If one of them dies, all are started again, up to `max_retries` times.

        Parameters
        ----------
        function
            Called in each worker with its rank, LightGBM's parameters of the network between the workers, and a
            function that returns the value that the first worker has given it.
        n_workers
            Number of workers, with a core each.
        storage
            Folder or URI for the records of Ray Train.
        """
        ray = self._connect()
        train, lightgbm = import_extra("ray.train", "ray"), import_extra("ray.train.lightgbm", "ray")
        trainer = lightgbm.LightGBMTrainer(
            _run_in_worker,
            train_loop_config={"function": ray.put(function)},
            scaling_config=train.ScalingConfig(num_workers=n_workers),
            run_config=train.RunConfig(
                storage_path=storage, failure_config=train.FailureConfig(max_failures=self.max_retries)
            ),
        )
        try:
            trainer.fit()
        except train.TrainingFailedError as error:
            raise JobError(
                f"trees failed after {self.max_retries} retries because a worker failed each time ({error}): start the "
                "job again; finished trees are kept"
            ) from None

    def _result(self, ray: Any, task: Any, item: object) -> Any:
        try:
            return ray.get(task)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # the original exception, without Ray's wrapper
        except ray.exceptions.RayError as error:
            raise JobError(
                f"item {item!r} failed after {self.max_retries} retries because its worker died each time "
                f"({type(error).__name__}), perhaps for lack of memory: give workers more memory and start the job "
                "again; finished items are kept"
            ) from None


def _apply(function: Callable[[T], R], item: T) -> R:
    return function(item)


def _run_in_worker(config: dict[str, Any]) -> None:
    ray, train = import_extra("ray", "ray"), import_extra("ray.train", "ray")
    network = import_extra("ray.train.lightgbm", "ray").get_network_params()
    share = import_extra("ray.train.collective", "ray").broadcast_from_rank_zero
    ray.get(config["function"])(train.get_context().get_world_rank(), network, share)


def _check_reachable(address: str) -> None:
    """Raise if nothing listens at the address; Ray itself would exit the process."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=10).close()


# --- tree models trained by several workers together: LightGBM's data-parallel learner through Ray Train --------------
#
# Each worker holds whole queries: those of every n-th block. Trees are trained in rounds. After a round, each worker
# keeps the model so far in the job folder, and a round always starts from there, whether a worker has failed or not. So
# the model depends on the number of workers and on the data, but not on failures.


ROUNDS = 6
"""Number of rounds of a tree model. At most the trees of one round are lost if a worker dies."""

# Lines of a model text that depend on where it was trained.
_NETWORK = re.compile(r"^\[(machines|local_listen_port|num_machines|tree_learner|pre_partition): .*\]\n", re.MULTILINE)


@dataclass(frozen=True, eq=False)
class DistributedTrees:
    """Trains one tree model after the other, each by all workers together."""

    cluster: RayCluster
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

    No worker learns from the queries of the fold `held_out`.

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
