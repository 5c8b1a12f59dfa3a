"""The executor beyond this machine: a Ray cluster."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self, TypeVar

from kinrank.errors import JobError, ParameterError
from kinrank.registry import import_extra

T = TypeVar("T")
R = TypeVar("R")


class RayCluster:
    """The workers of a Ray cluster.

    A worker or a node that dies is replaced, and its item done again elsewhere. Nothing but small results passes
    through the driver; no more than `ahead` items for each core are under way, so memory is bounded by the workers.

    Parameters
    ----------
    address : str
        As `ray.init` takes it: ``"10.0.0.1:6379"``; ``"local"`` starts one of this machine's cores; ``"auto"`` is the
        session that is open, or else the cluster that this machine is a node of.
    retries : int
        How often an item is tried again whose worker or node died.
    ahead : int
        Items submitted for each core.
    """

    def __init__(self, address: str = "auto", *, retries: int = 20, ahead: int = 2) -> None:
        self.address = address
        self.retries = retries
        self.ahead = ahead
        self._opened = False

    def __enter__(self) -> Self:
        self._connect()
        return self

    def __exit__(self, *_: object) -> None:
        if self._opened:  # a session that was open before is somebody else's
            import_extra("ray", "ray").shutdown()
            self._opened = False

    def _connect(self) -> Any:
        ray = import_extra("ray", "ray")
        if ray.is_initialized():
            self._check_session(ray)
            return ray
        try:
            _knock(self.address)
            ray.init(self.address, log_to_driver=False, logging_level="warning", configure_logging=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise JobError(
                f"no Ray cluster at {self.address!r} ({error}): start one, or say 'local' for this machine's cores"
            ) from None
        self._opened = True
        return ray

    def _check_session(self, ray: Any) -> None:
        if self._opened or self.address == "auto":
            return
        session = ray.get_runtime_context().gcs_address
        if session != self.address:
            raise ParameterError(
                f"no session at {self.address!r} while one is open at {session!r}: use that one by RayCluster(), or "
                "end it by ray.shutdown()"
            )

    def map_unordered(self, function: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[int, R]]:
        """As they finish."""
        ray = self._connect()
        shared = ray.put(function)  # once for all items; large arrays in it are mapped by workers, not copied
        call = ray.remote(num_cpus=1, max_retries=self.retries)(_apply)
        under_way: dict[Any, int] = {}
        following = 0
        try:
            while following < len(items) or under_way:
                cores = max(1, int(ray.cluster_resources().get("CPU", 1)))  # nodes come and go
                while following < len(items) and len(under_way) < self.ahead * cores:
                    under_way[call.remote(shared, items[following])] = following
                    following += 1
                for done in ray.wait(list(under_way), num_returns=1, timeout=10)[0]:
                    position = under_way.pop(done)
                    yield position, self._result(ray, done, items[position])
        finally:
            for task in under_way:
                ray.cancel(task, force=False)

    def _result(self, ray: Any, task: Any, item: object) -> Any:
        try:
            return ray.get(task)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None  # as it was raised, without Ray's account of it
        except ray.exceptions.RayError as error:
            raise JobError(
                f"item {item!r} was given up after {self.retries} retries, its worker died each time "
                f"({type(error).__name__}): does it need more memory than a worker has? What is done is kept; "
                "start again to go on"
            ) from None


def _apply(function: Callable[[T], R], item: T) -> R:
    return function(item)


def _knock(address: str) -> None:
    """Raise where nobody listens: Ray itself would end the process."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "://" not in address:
        socket.create_connection((host, int(port)), timeout=10).close()
