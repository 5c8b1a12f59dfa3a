"""What Prometheus reads at /metrics; over all worker processes where there are several."""

from __future__ import annotations

import os
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from kinrank.serve.http.logs import JsonLog
from kinrank.serve.messages import Fallback
from kinrank.serve.observer import Observer

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_NOVELTY = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)


class Metrics(Observer):
    """Counts and times of one process, and the log of what is rare.

    Parameters
    ----------
    log
        Where swaps of models and failures are also written.
    """

    def __init__(self, log: JsonLog) -> None:
        self._log = log
        self.registry = CollectorRegistry()
        one = self.registry
        self._requests = Counter("kinrank_requests", "Answers by status.", ["endpoint", "status"], registry=one)
        self._seconds = Histogram(
            "kinrank_request_seconds", "Time to answer.", ["endpoint"], buckets=_SECONDS, registry=one
        )
        self._stages = Histogram(
            "kinrank_stage_seconds", "Time of a stage of a request.", ["stage"], buckets=_SECONDS, registry=one
        )
        self._fallbacks = Counter(
            "kinrank_fallbacks", "Answers in the engine's order.", ["model", "reason"], registry=one
        )
        self._shed = Counter("kinrank_shed", "Requests turned away under load.", registry=one)
        self._novelty = Histogram(
            "kinrank_query_novelty",
            "How far live queries are from judged ones; 1 is the edge of what is usual. Rises with drift.",
            ["model"],
            buckets=_NOVELTY,
            registry=one,
        )
        self._models = Counter(
            "kinrank_model_events", "Models taken, refused and taught.", ["model", "event"], registry=one
        )
        self._errors = Counter("kinrank_errors", "Failures that no input should cause.", ["where"], registry=one)
        self._in_flight = Gauge(
            "kinrank_in_flight", "Requests being answered.", multiprocess_mode="livesum", registry=one
        )
        # Looking a series up costs more than adding to it; of those that every request adds to there are few.
        self._answers = cache(self._requests.labels)
        self._times = cache(self._seconds.labels)
        self._stage_times = cache(self._stages.labels)
        self._distances = cache(self._novelty.labels)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._answers(endpoint, str(status)).inc()
        self._times(endpoint).observe(seconds)

    def shed(self) -> None:
        """A request was turned away."""
        self._shed.inc()

    def in_flight(self, count: int) -> None:
        """How many requests are being answered."""
        self._in_flight.set(count)

    def stage(self, stage: str, seconds: float) -> None:
        """A stage took so long."""
        self._stage_times(stage).observe(seconds)

    def fallback(self, model: str, reason: Fallback) -> None:
        """An answer went out in the engine's order."""
        self._fallbacks.labels(model, reason.value).inc()

    def novelty(self, model: str, novelty: float) -> None:
        """A live query is so far from the judged ones."""
        self._distances(model).observe(novelty)

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        """A model was taken, refused or taught."""
        self._models.labels(model, event).inc()
        self._log.write("model", model=model, version=version, what=event, detail=detail)

    def error(self, where: str, error: BaseException) -> None:
        """Something failed."""
        self._errors.labels(where).inc()
        self._log.write("error", where=where, error=f"{type(error).__name__}: {error}")

    def page(self) -> bytes:
        """The text that Prometheus reads."""
        if MULTIPROCESS not in os.environ:
            return generate_latest(self.registry)
        together = CollectorRegistry()
        MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
