"""Ranking of batches. Every query gets a result, whatever goes wrong."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from kinrank.arrays import Float32, Float64
from kinrank.errors import DataError, EncoderError, KinrankError
from kinrank.serve.messages import CandidateSet, Fallback, Ranking, UnknownFeatureError, to_query_set
from kinrank.serve.models import ModelSlot
from kinrank.serve.observer import Observer
from kinrank.serve.schedule import Job
from kinrank.serve.served_model import ServedModel


@dataclass(frozen=True, slots=True, eq=False)
class _Ready:
    """A job that can be ranked: its candidates with a vector, and their features in the model's order."""

    job: Job
    candidates: CandidateSet
    rows: Float32


class BatchRanker:
    """Ranks the jobs of one model.

    Parameters
    ----------
    slot
        The model.
    max_novelty
        Queries with a higher novelty stay in the engine's order.
    observer
        Receives stage times, novelty and errors.
    """

    def __init__(self, slot: ModelSlot, *, max_novelty: float, observer: Observer) -> None:
        self._slot = slot
        self._max_novelty = max_novelty
        self._observer = observer

    def __call__(self, jobs: list[Job]) -> None:
        """Rank every job and deliver its ranking."""
        start = time.perf_counter()
        served = self._slot.current
        for job in jobs:
            job.context.run(self._observer.stage, "wait", start - job.submitted)
        if served is None:
            for job in jobs:
                job.deliver(self.in_engine_order(job.candidates, Fallback.NO_MODEL, "no model is loaded"))
            return
        for group in self._aligned(served, jobs):
            self._rank(served, group)

    def drop(self, job: Job) -> None:
        """Deliver the engine's order, unless the deadline has passed: then the caller has answered already."""
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
                candidates = job.context.run(served.encoder, job.candidates, self._observer)
                rows = candidates.align(served.ranker.feature_names_)
            except EncoderError as error:
                job.context.run(self._observer.error, "encode", error)
                job.deliver(self.in_engine_order(job.candidates, Fallback.ENCODER, str(error)))
                continue
            except UnknownFeatureError as error:
                job.deliver(self.in_engine_order(job.candidates, Fallback.UNKNOWN_FEATURE, str(error)))
                continue
            groups.setdefault(candidates.batch_key, []).append(_Ready(job, candidates, rows))
        return groups.values()

    def in_engine_order(self, candidates: CandidateSet, reason: Fallback, detail: str) -> Ranking:
        """Return the candidates in the order they were sent."""
        return Ranking(candidates.ids, model=self._slot.name, fallback=reason, detail=detail)

    def _rank(self, served: ServedModel, group: Sequence[_Ready]) -> None:
        start = time.perf_counter()
        try:
            candidates, rows = [each.candidates for each in group], [each.rows for each in group]
            queries = to_query_set(candidates, rows, served.ranker.feature_names_)
            predicted = served.ranker.predict_with_novelty(queries)
        except Exception as error:
            if len(group) > 1:  # one bad query must not fail the others
                for each in group:
                    self._rank(served, [each])
                return
            group[0].job.deliver(self._failed(group[0].job, group[0].rows, error))
            return
        seconds = time.perf_counter() - start
        for position, job in enumerate(each.job for each in group):
            job.context.run(self._observer.stage, "rank", seconds, len(group))
            scores = predicted.scores[queries.offsets[position] : queries.offsets[position + 1]]
            novelty = None if predicted.novelty is None else float(predicted.novelty[position])
            job.deliver(self._ranking(served, job.candidates, scores, novelty))

    def _ranking(
        self, served: ServedModel, candidates: CandidateSet, scores: Float64, novelty: float | None
    ) -> Ranking:
        if novelty is not None:
            self._observer.novelty(self._slot.name, novelty)
            if novelty > self._max_novelty:
                detail = f"novelty {novelty:.3g} is above {self._max_novelty:.3g}: no similar query was judged"
                return self.in_engine_order(candidates, Fallback.NOVEL, detail)
        if not np.isfinite(scores).all():
            return self.in_engine_order(candidates, Fallback.NOT_FINITE, "the model's scores are not finite")
        order = np.argsort(-scores, kind="stable")  # ties stay in the engine's order
        ids = candidates.ids
        return Ranking(
            [ids[position] for position in order.tolist()],
            scores[order].tolist(),
            self._slot.name,
            served.version,
            novelty=novelty,
        )

    def _failed(self, job: Job, rows: Float32, error: Exception) -> Ranking:
        if isinstance(error, DataError) and not np.isfinite(rows).all():
            return self.in_engine_order(job.candidates, Fallback.NOT_FINITE, str(error))
        if isinstance(error, KinrankError):
            return self.in_engine_order(job.candidates, Fallback.MODEL_ERROR, str(error))
        job.context.run(self._observer.error, "rank", error)
        return self.in_engine_order(job.candidates, Fallback.MODEL_ERROR, "the model failed; the log has the traceback")
