"""Prometheus metrics of the process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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

from kinrank.serve._events.log import EventLog
from kinrank.serve._http.logs import Traces, add_log_fields, log_event
from kinrank.serve.messages import Fallback, Observer

_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_NOVELTY = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0)
_BATCHES = (1, 2, 4, 8, 16, 32)
_NOVELTY_HELP = (
    "Distance from live queries to the nearest judged query, as a multiple of the distance within which 99% of the "
    "judged queries have their nearest other one. Rises when live queries drift away from the judged ones."
)


class Metrics(Observer):
    """Metrics of one process. Model events and errors are also logged."""

    def __init__(self, traces: Traces | None = None) -> None:
        self.traces = traces or Traces()
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        GCCollector(registry=registry)

        # Finding a series costs more than updating it, and every request updates a few of them.
        def counter(name: str, text: str, *labels: str) -> Callable[..., Counter]:
            return cache(Counter(f"kinrank_{name}", text, labels, registry=registry).labels)

        def histogram(name: str, text: str, buckets: Sequence[float], *labels: str) -> Callable[..., Histogram]:
            return cache(Histogram(f"kinrank_{name}", text, labels, buckets=buckets, registry=registry).labels)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"kinrank_{name}", text, labels, registry=registry)

        self._requests = counter("requests", "Responses by status.", "endpoint", "status")
        self._seconds = histogram("request_seconds", "Time to respond.", _SECONDS, "endpoint")
        self._stages = histogram("stage_seconds", "Time of one stage of a request.", _SECONDS, "stage")
        self._fallbacks = counter("fallbacks", "Results in the engine's order.", "model", "reason")
        self._shed = Counter("kinrank_shed", "Requests rejected because of load.", registry=registry)
        self._novelty = histogram("query_novelty", _NOVELTY_HELP, _NOVELTY, "model")
        self._models = counter("model_events", "Models loaded, refused or updated.", "model", "event")
        self._errors = counter("errors", "Failures that no input should cause.", "where")
        self._in_flight = gauge("in_flight", "Requests being handled.")
        self._waiting = gauge("waiting", "Queries that wait for a model.", "model")
        self._batches = histogram("batch_size", "Queries ranked together.", _BATCHES, "model")
        self._versions = gauge("model_info", "Version of the model in use; always 1.", "model", "version")
        self._revisions = gauge("judgment_revision", "Revision of the judgments that were learned.", "model")
        self._evidence = gauge("evidence_revision", "Revision of the choices that were read.", "model")
        self._backlog = gauge("events_waiting", "Lists that wait to be counted, of all replicas.")
        self._stored = gauge("events_stored", "Lists and clicks that this process has stored since its start.", "kind")
        self._unknown = gauge("events_unknown_lists", "Clicked lists that were not known when they were to be counted.")
        self._aside = gauge("events_set_aside", "Queries whose lists cannot be counted for now.")
        self._memory_store = gauge(
            "memory_store",
            "Reads of the memory's database that failed, restored copies of it, and changes lost.",
            "what",
        )
        self._failing = gauge("failing", "1 for what has been failing in the background.", "where")
        self._results = counter("results", "Results by version: ranked, or why not.", "model", "version", "result")
        self._rank_seconds = histogram("rank_seconds", "Time to rank a query.", _SECONDS[:-3], "model", "version")
        self._version_of: dict[str, str] = {}

    def request(self, endpoint: str, status: int, seconds: float) -> None:
        """Record a response."""
        self._requests(endpoint, str(status)).inc()
        self._seconds(endpoint).observe(seconds)

    def shed(self) -> None:
        """Record a rejected request."""
        self._shed.inc()

    def in_flight(self, count: int) -> None:
        """Set the number of requests being handled."""
        self._in_flight.set(count)

    def stage(self, stage: str, seconds: float, queries: int = 1) -> None:
        """Record the time of a stage, per query."""
        self._stages(stage).observe(seconds / queries)
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
            self._stages(stage).observe(seconds)
            _log_stage(stage, seconds)

    def fallback(self, model: str, reason: Fallback) -> None:
        """Record a result in the engine's order."""
        self._fallbacks(model, reason.value).inc()

    def ranked(self, model: str, version: str, seconds: float) -> None:
        """Record the time of a ranking."""
        self._rank_seconds(model, version).observe(seconds)

    def result(self, model: str, version: str, fallback: Fallback | None) -> None:
        """Record a result."""
        self._results(model, version, "ranked" if fallback is None else fallback.value).inc()

    def novelty(self, model: str, novelty: float) -> None:
        """Record the novelty of a live query."""
        self._novelty(model).observe(novelty)

    def batch(self, model: str, size: int) -> None:
        """Record a batch."""
        self._batches(model).observe(size)

    def state(self, model: str, waiting: int, revision: int | None) -> None:
        """Set how many queries wait for a model, and which judgments it has learned."""
        self._waiting.labels(model).set(waiting)
        if revision is not None:
            self._revisions.labels(model).set(revision)

    def memory(self, events: EventLog, revisions: Mapping[str, int], failing: Sequence[str]) -> None:
        """Set what is known of choices: what was stored and counted, and up to which revision models have it."""
        for model, revision in revisions.items():
            self._evidence.labels(model).set(revision)
        for kind, number in events.stored.items():
            self._stored.labels(kind).set(number)
        self._backlog.set(events.backlog)
        self._unknown.set(events.counting.unknown)
        self._aside.set(len(events.counting.aside))
        for where in ("events", "set-aside"):
            self._failing.labels(where).set(where in failing)

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        """Record and log an event of a model."""
        self._models(model, event).inc()
        if event == "loaded" and version is not None:
            if model in self._version_of:
                self._versions.remove(model, self._version_of[model])
            self._version_of[model] = version
            self._versions.labels(model, version).set(1)
        log_event("model", model=model, version=version, what=event, detail=detail)

    def memory_store(self, failures: int, restored: int, lost: int) -> None:
        """Record what went wrong with the database of the memory."""
        for what, number in (("failures", failures), ("restored", restored), ("lost", lost)):
            self._memory_store.labels(what).set(number)

    def error(self, where: str, error: BaseException) -> None:
        """Record an unexpected failure and log its traceback."""
        self._errors(where).inc()
        log_event("error", error=error, where=where, message=f"{type(error).__name__}: {error}")

    def page(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        return generate_latest(self.registry)


def _log_stage(stage: str, seconds: float) -> None:
    add_log_fields(**{f"{stage}_ms": round(seconds * 1000, 3)})
