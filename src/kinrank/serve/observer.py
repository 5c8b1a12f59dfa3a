"""The interface through which a service reports events; metrics and logs implement it."""

from __future__ import annotations

from kinrank.serve.messages import Fallback


class Observer:
    """Receives the events of a service. The methods do nothing; override those you need."""

    def stage(self, stage: str, seconds: float) -> None:
        """Record the time of a stage of a request: ``wait`` for the model's thread, ``encode``, ``rank``..."""

    def fallback(self, model: str, reason: Fallback) -> None:
        """Record a result in the engine's order."""

    def novelty(self, model: str, novelty: float) -> None:
        """Record the novelty of a live query; see `kinrank.serve.Ranking`."""

    def batch(self, model: str, size: int, waiting: int) -> None:
        """Record the size of a batch, and how many queries wait after it."""

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        """Record that a model was ``loaded``, ``refused`` or ``missing``, or that judgments were ``learned`` or not.

        The event is ``learn-failed`` if the judgments could not be learned.
        """

    def error(self, where: str, error: BaseException) -> None:
        """Record a failure that no input should cause."""
