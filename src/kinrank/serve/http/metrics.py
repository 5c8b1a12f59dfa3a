"""Prometheus metrics, summed over all worker processes."""

from __future__ import annotations

import os
from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from kinrank.serve.http.logs import log_event
from kinrank.serve.messages import Fallback
from kinrank.serve.observer import Observer

MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_NOVELTY = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
_NOVELTY_HELP = (
    "Distance from live queries to the nearest judged query, as a multiple of the distance within which 99% of the "
    "judged queries have their nearest other one. Rises when live queries drift away from the judged ones."
)


class Metrics(Observer):
    """Metrics of one process. Model events and errors are also logged."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._requests = Counter("kinrank_requests", "Responses by status.", ["endpoint", "status"], registry=registry)
        self._seconds = Histogram(
            "kinrank_request_seconds", "Time to respond.", ["endpoint"], buckets=_SECONDS, registry=registry
        )
        self._stages = Histogram(
            "kinrank_stage_seconds", "Time of one stage of a request.", ["stage"], buckets=_SECONDS, registry=registry
        )
        self._fallbacks = Counter(
            "kinrank_fallbacks", "Results in the engine's order.", ["model", "reason"], registry=registry
        )
        self._shed = Counter("kinrank_shed", "Requests rejected because of load.", registry=registry)
        self._novelty = Histogram(
            "kinrank_query_novelty", _NOVELTY_HELP, ["model"], buckets=_NOVELTY, registry=registry
        )
        self._models = Counter(
            "kinrank_model_events", "Models loaded, refused or updated.", ["model", "event"], registry=registry
        )
        self._errors = Counter("kinrank_errors", "Failures that no input should cause.", ["where"], registry=registry)
        self._in_flight = Gauge(
            "kinrank_in_flight", "Requests being handled.", multiprocess_mode="livesum", registry=registry
        )
        # Finding a series costs more than updating it, and every request updates a few of them.
        self._requests_of = cache(self._requests.labels)
        self._seconds_of = cache(self._seconds.labels)
        self._stages_of = cache(self._stages.labels)
        self._novelty_of = cache(self._novelty.labels)

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """Record a response."""
        self._requests_of(endpoint, str(status)).inc()
        self._seconds_of(endpoint).observe(seconds)

    def shed(self) -> None:
        """Record a rejected request."""
        self._shed.inc()

    def in_flight(self, count: int) -> None:
        """Set the number of requests being handled."""
        self._in_flight.set(count)

    def stage(self, stage: str, seconds: float) -> None:
        """Record the time of a stage."""
        self._stages_of(stage).observe(seconds)

    def fallback(self, model: str, reason: Fallback) -> None:
        """Record a result in the engine's order."""
        self._fallbacks.labels(model, reason.value).inc()

    def novelty(self, model: str, novelty: float) -> None:
        """Record the novelty of a live query."""
        self._novelty_of(model).observe(novelty)

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        """Record and log an event of a model."""
        self._models.labels(model, event).inc()
        log_event("model", model=model, version=version, what=event, detail=detail)

    def error(self, where: str, error: BaseException) -> None:
        """Record an unexpected failure and log its traceback."""
        self._errors.labels(where).inc()
        log_event("error", error=error, where=where, message=f"{type(error).__name__}: {error}")

    def page(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        if MULTIPROCESS not in os.environ:
            return generate_latest(self.registry)
        combined = CollectorRegistry()
        MultiProcessCollector(combined)  # type: ignore[no-untyped-call]
        return generate_latest(combined)
