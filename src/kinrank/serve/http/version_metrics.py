"""Metrics by version of a model, and comparisons with a shadow model."""

from __future__ import annotations

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Histogram

from kinrank.serve.http.logs import log_event
from kinrank.serve.messages import Fallback, Ranking
from kinrank.serve.observer import Observer

LOGGED = 10
"""Documents of each order in the log."""
_SECONDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25)
_TAUS = (-0.5, 0.0, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
_OVERLAPS = tuple(tenth / 10 for tenth in range(11))


class VersionMetrics(Observer):
    """Counts of the versions of models.

    Parameters
    ----------
    registry
        Where they are registered.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        results = Counter(
            "kinrank_results",
            "Results by version: ranked, or why not.",
            ["model", "version", "result"],
            registry=registry,
        )
        seconds = Histogram(
            "kinrank_rank_seconds", "Time to rank a query.", ["model", "version"], buckets=_SECONDS, registry=registry
        )
        tau = Histogram(
            "kinrank_shadow_tau",
            "Kendall's tau between the answer and the shadow's order.",
            ["model", "version"],
            buckets=_TAUS,
            registry=registry,
        )
        overlap = Histogram(
            "kinrank_shadow_overlap",
            "Share of the first ten documents that the answer and the shadow have in common.",
            ["model", "version"],
            buckets=_OVERLAPS,
            registry=registry,
        )
        shadowed = Counter(
            "kinrank_shadow_queries",
            "Queries of the shadow: compared, failed, or dropped because queries waited.",
            ["model", "result"],
            registry=registry,
        )
        # Finding a series costs more than updating it.
        self._results_of, self._rank_seconds_of = cache(results.labels), cache(seconds.labels)
        self._tau_of, self._overlap_of, self._shadowed_of = (
            cache(tau.labels),
            cache(overlap.labels),
            cache(shadowed.labels),
        )

    def ranked(self, model: str, version: str, seconds: float) -> None:
        """Record the time of a ranking."""
        self._rank_seconds_of(model, version).observe(seconds)

    def result(self, model: str, version: str, fallback: Fallback | None) -> None:
        """Record a result."""
        self._results_of(model, version, "ranked" if fallback is None else fallback.value).inc()

    def shadow(self, model: str, answer: Ranking, shadow: Ranking, tau: float, overlap: float) -> None:
        """Record and log a comparison."""
        if shadow.version is None:
            self._shadowed_of(model, "failed").inc()
            return
        self._shadowed_of(model, "compared").inc()
        fitted = shadow.version.partition("+")[0]
        self._tau_of(model, fitted).observe(tau)
        self._overlap_of(model, fitted).observe(overlap)
        log_event(
            "shadow",
            model=model,
            version=answer.version,
            shadow_version=shadow.version,
            ids=answer.ids[:LOGGED],
            shadow_ids=shadow.ids[:LOGGED],
            tau=round(tau, 4),
            overlap=overlap,
        )

    def shadow_dropped(self, model: str) -> None:
        """Record a query for which there was no time."""
        self._shadowed_of(model, "dropped").inc()
