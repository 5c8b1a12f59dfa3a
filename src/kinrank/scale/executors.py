"""Ray: an executor on a cluster."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self, TypeVar

from kinrank.errors import JobError, ParameterError
from kinrank.registry import import_extra

T = TypeVar("T")
R = TypeVar("R")


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


def _check_reachable(address: str) -> None:
    """Raise if nothing listens at the address; Ray itself would exit the process."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=10).close()
