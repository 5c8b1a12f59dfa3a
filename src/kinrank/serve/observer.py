"""The interface through which a service reports events; metrics and logs implement it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kinrank.serve.messages import Fallback


class Observer:
    """Receives the events of a service. The methods do nothing; override those you need."""

    def stage(self, stage: str, seconds: float, queries: int = 1) -> None:
        """Record a stage of a request that has just ended: ``wait`` for the model's thread, ``encode``, ``rank``...

        `queries` is the number of queries that were handled together in this time.
        """

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Record the time of the block as a stage, whether or not it succeeds."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.stage(stage, time.perf_counter() - start)

    def fallback(self, model: str, reason: Fallback) -> None:
        """Record a result in the engine's order."""

    def ranked(self, model: str, version: str, seconds: float) -> None:
        """Record the time that a version of a model took for a query."""

    def result(self, model: str, version: str, fallback: Fallback | None) -> None:
        """Record whether a version of a model ranked a query, or why not."""

    def novelty(self, model: str, novelty: float) -> None:
        """Record the novelty of a live query; see `kinrank.serve.Ranking`."""

    def batch(self, model: str, size: int) -> None:
        """Record the size of a batch."""

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        """Record that a model was ``loaded``, ``refused`` or ``missing``, or that judgments were ``learned`` or not.

        A model without examples is ``untested``, and one whose lists cannot explore although they should is
        ``not-exploring``. The event is ``unreachable`` if the store of the model cannot be read, and ``learn-failed``
        if judgments or choices could not be learned. After an older copy of the judgments was restored, they are
        ``relearned``.
        """

    def error(self, where: str, error: BaseException) -> None:
        """Record a failure that no input should cause."""
