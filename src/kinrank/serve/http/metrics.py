"""Prometheus metrics of the process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from kinrank.serve.http.logs import add_log_fields, log_event
from kinrank.serve.http.traces import Traces
from kinrank.serve.http.version_metrics import VersionMetrics
from kinrank.serve.messages import Fallback

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_NOVELTY = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
_BATCHES = (1, 2, 4, 8, 16, 32)
_NOVELTY_HELP = (
    "Distance from live queries to the nearest judged query, as a multiple of the distance within which 99% of the "
    "judged queries have their nearest other one. Rises when live queries drift away from the judged ones."
)


class Metrics(VersionMetrics):
    """Metrics of one process. Model events and errors are also logged.

    Parameters
    ----------
    traces
        Also receives the stages of requests; passes traces on and records nothing by default.
    """

    def __init__(self, traces: Traces | None = None) -> None:
        self.traces = traces or Traces()
        self.registry = registry = CollectorRegistry()
        super().__init__(registry)
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)
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
        self._in_flight = Gauge("kinrank_in_flight", "Requests being handled.", registry=registry)
        self._waiting = Gauge("kinrank_waiting", "Queries that wait for a model.", ["model"], registry=registry)
        self._batches = Histogram(
            "kinrank_batch_size", "Queries ranked together.", ["model"], buckets=_BATCHES, registry=registry
        )
        self._versions = Gauge(
            "kinrank_model_info", "Version of the model in use; always 1.", ["model", "version"], registry=registry
        )
        self._revisions = Gauge(
            "kinrank_judgment_revision", "Revision of the judgments that were learned.", ["model"], registry=registry
        )
        # Finding a series costs more than updating it, and every request updates a few of them.
        self._requests_of = cache(self._requests.labels)
        self._seconds_of = cache(self._seconds.labels)
        self._stages_of = cache(self._stages.labels)
        self._novelty_of = cache(self._novelty.labels)
        self._batches_of = cache(self._batches.labels)
        self._version_of: dict[str, str] = {}

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

    def stage(self, stage: str, seconds: float, queries: int = 1) -> None:
        """Record the time of a stage, per query."""
        self._stages_of(stage).observe(seconds / queries)
        self.traces.stage(stage, seconds, queries)
        _log_stage(stage, seconds)
        if stage == "rank":
            add_log_fields(batch=queries)

    @contextmanager
    def measure(self, stage: str) -> Iterator[None]:
        """Record the time of the block as a stage that sends requests to other services."""
        start = time.perf_counter()
        try:
            with self.traces.measure(stage):
                yield
        finally:
            seconds = time.perf_counter() - start
            self._stages_of(stage).observe(seconds)
            _log_stage(stage, seconds)

    def fallback(self, model: str, reason: Fallback) -> None:
        """Record a result in the engine's order."""
        self._fallbacks.labels(model, reason.value).inc()

    def novelty(self, model: str, novelty: float) -> None:
        """Record the novelty of a live query."""
        self._novelty_of(model).observe(novelty)

    def batch(self, model: str, size: int) -> None:
        """Record a batch."""
        self._batches_of(model).observe(size)

    def state(self, model: str, waiting: int, revision: int | None) -> None:
        """Set how many queries wait for a model, and which judgments it has learned."""
        self._waiting.labels(model).set(waiting)
        if revision is not None:
            self._revisions.labels(model).set(revision)

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        """Record and log an event of a model."""
        self._models.labels(model, event).inc()
        if event in ("loaded", "ended") and model in self._version_of:
            self._versions.remove(model, self._version_of.pop(model))
        if event == "loaded" and version is not None:
            self._version_of[model] = version
            self._versions.labels(model, version).set(1)
        log_event("model", model=model, version=version, what=event, detail=detail)

    def error(self, where: str, error: BaseException) -> None:
        """Record an unexpected failure and log its traceback."""
        self._errors.labels(where).inc()
        log_event("error", error=error, where=where, message=f"{type(error).__name__}: {error}")

    def page(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self.registry)


def _log_stage(stage: str, seconds: float) -> None:
    add_log_fields(**{f"{stage}_ms": round(seconds * 1000, 3)})
