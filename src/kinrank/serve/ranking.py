"""Ranking of batches. Every query gets a result, whatever goes wrong."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from kinrank.arrays import Float32, Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.serve.batches import Job
from kinrank.serve.experiments import DRAW, Draw, explored_order
from kinrank.serve.messages import CandidateSet, Fallback, Ranking, failure_in, failure_of, to_query_set
from kinrank.serve.models import SESSION, Rollout
from kinrank.serve.observer import Observer
from kinrank.serve.served_model import ServedModel


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A job that can be ranked: its candidates with a vector, and their features in the model's order."""

    job: Job
    candidates: CandidateSet
    rows: Float32
    draw: Draw | None = None
    """What ranks it in place of the expected rates of choices; the same for all jobs of a batch."""


@dataclass(eq=False, repr=False)
class BatchRanker:
    """Ranks the jobs of one model."""

    rollout: Rollout
    """The models."""
    _: KW_ONLY
    max_novelty: float
    """Queries with a higher novelty stay in the engine's order."""
    observer: Observer
    """Receives stage times, novelty, results and errors."""

    def __post_init__(self) -> None:
        self._name = self.rollout.current.name
        self.on_ranked: Callable[[Job, Ranking], None] = lambda *_: None
        """Called after a ranking by a model was delivered."""

    def __call__(self, jobs: list[Job]) -> None:
        """Rank every job and deliver its ranking."""
        start = time.perf_counter()
        chosen: dict[ServedModel, list[Job]] = {}
        for job in jobs:
            job.context.run(self.observer.stage, "wait", start - job.submitted)
            served = self._model_for(job)
            if served is None:
                job.deliver(self.in_engine_order(job.candidates, Fallback.NO_MODEL, "no model is loaded"))
            else:
                chosen.setdefault(served, []).append(job)
        for served, some in chosen.items():
            for group in self._aligned(served, some):
                self._rank(served, group)

    def drop(self, job: Job) -> None:
        """Deliver the engine's order, unless the deadline has passed: then the caller has answered already."""
        served = self._model_for(job)
        if served is not None:
            self.observer.result(self._name, served.fitted, Fallback.LATE)
        if time.perf_counter() < job.expires:
            job.deliver(self.refusal(job.candidates))

    def refusal(self, candidates: CandidateSet) -> Ranking:
        """Return the result for a query that could not be ranked in time."""
        return self.in_engine_order(candidates, Fallback.LATE, "too many queries are waiting")

    def _aligned(self, served: ServedModel, jobs: list[Job]) -> Iterable[list[_Ready]]:
        """Group jobs that can be ranked together, texts encoded and features in the model's order."""
        groups: dict[tuple[object, ...], list[_Ready]] = {}
        for job in jobs:
            try:
                candidates = job.context.run(served.encoder, job.candidates, self.observer)
                rows = candidates.align(served.ranker.feature_names_)
                draw = None if served.choices is None else job.context.get(DRAW)
            except Exception as error:  # one bad query must not fail the others
                self._fail(served, job, error)
                continue
            groups.setdefault((draw, *candidates.batch_key), []).append(_Ready(job, candidates, rows, draw))
        return groups.values()

    def in_engine_order(self, candidates: CandidateSet, reason: Fallback, detail: str) -> Ranking:
        """Return the candidates in the order they were sent."""
        return Ranking(candidates.ids, model=self._name, fallback=reason, detail=detail)

    def _model_for(self, job: Job) -> ServedModel | None:
        return self.rollout.model_for(job.candidates, job.context.get(SESSION))

    def _deliver(self, served: ServedModel, job: Job, ranking: Ranking) -> None:
        job.deliver(ranking)
        # The caller has used the engine's order since the deadline.
        reason = Fallback.LATE if time.perf_counter() > job.expires else ranking.fallback
        self.observer.result(self._name, served.fitted, reason)
        if reason is None and ranking.explored is None:
            self.on_ranked(job, ranking)

    def _rank(self, served: ServedModel, group: Sequence[_Ready]) -> None:
        start = time.perf_counter()
        try:
            candidates, rows = [each.candidates for each in group], [each.rows for each in group]
            queries = to_query_set(candidates, rows, served.ranker.feature_names_)
            draw = group[0].draw
            predicted = served.ranker.predict_with_novelty(queries)
            rates = None if draw is None else _rates(served.ranker, queries, draw)
        except Exception as error:
            if len(group) > 1:  # one bad query must not fail the others
                for each in group:
                    self._rank(served, [each])
                return
            self._fail(served, group[0].job, error, group[0].rows)
            return
        seconds = time.perf_counter() - start
        for position, job in enumerate(each.job for each in group):
            job.context.run(self.observer.stage, "rank", seconds, len(group))
            self.observer.ranked(self._name, served.fitted, seconds / len(group))
            own = slice(queries.offsets[position], queries.offsets[position + 1])
            scores = predicted.scores[own]
            novelty = None if predicted.novelty is None else float(predicted.novelty[position])
            order = np.argsort(-scores, kind="stable").astype(np.int64)  # ties stay in the engine's order
            if draw is not None and rates is not None:
                order = explored_order(order, rates[0][own], rates[1][own], draw.seed)
            self._deliver(served, job, self._ranking(served, job.candidates, scores, novelty, order, draw))

    def _ranking(
        self,
        served: ServedModel,
        candidates: CandidateSet,
        scores: Float64,
        novelty: float | None,
        order: Int64,
        draw: Draw | None,
    ) -> Ranking:
        if novelty is not None:
            self.observer.novelty(self._name, novelty)
        failure = failure_in(scores, novelty, self.max_novelty)
        if failure is not None:
            return self.in_engine_order(candidates, failure.reason, failure.detail)
        ids = candidates.ids
        return Ranking(
            [ids[position] for position in order.tolist()],
            scores[order].tolist(),
            self._name,
            served.version,
            novelty=novelty,
            explored=None if draw is None else draw.propensity,
        )

    def _fail(self, served: ServedModel, job: Job, error: Exception, rows: Float32 | None = None) -> None:
        failure = failure_of(error, rows)
        if failure.where is not None:
            job.context.run(self.observer.error, failure.where, error)
        self._deliver(served, job, self.in_engine_order(job.candidates, failure.reason, failure.detail))


def _rates(ranker: Any, queries: QuerySet, draw: Draw) -> tuple[Float64, Float64]:
    rates: tuple[Float64, Float64] = ranker.draw(queries, draw.seed)
    return rates
