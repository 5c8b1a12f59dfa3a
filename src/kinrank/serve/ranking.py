"""Some queries ranked by a model in one go; whatever goes wrong, each gets an answer."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import numpy as np

from kinrank.arrays import Float32, Float64
from kinrank.errors import DataError, KinrankError
from kinrank.serve.batches import Job
from kinrank.serve.messages import Candidates, Fallback, Ranking, UnknownFeatureError, as_query_set
from kinrank.serve.models import ModelSlot, Served
from kinrank.serve.observer import Observer


class BatchRanker:
    """Ranks the jobs of one model.

    Parameters
    ----------
    slot
        The place of the model.
    far
        The novelty from which on a query is left to the engine.
    observer
        Is told of stages, novelty and what went wrong.
    """

    def __init__(self, slot: ModelSlot, *, far: float, observer: Observer) -> None:
        self._slot = slot
        self._far = far
        self._observer = observer

    def __call__(self, jobs: list[Job]) -> None:
        """Answer every job."""
        start = time.perf_counter()
        served = self._slot.current
        for job in jobs:
            self._observer.stage("wait", start - job.asked)
        waiting = [job for job in jobs if start <= job.expires]  # the others have been answered without us
        if served is None:
            for job in waiting:
                job.deliver(self.in_engine_order(job.candidates, Fallback.NO_MODEL, "no model is loaded"))
            return
        for alike, rows in self._aligned(served, waiting):
            self._rank(served, alike, rows)

    def _aligned(self, served: Served, jobs: list[Job]) -> Iterable[tuple[list[Job], list[Float32]]]:
        """Jobs of one kind together, with their features in the order of the model."""
        groups: dict[tuple[object, ...], tuple[list[Job], list[Float32]]] = {}
        for job in jobs:
            try:
                rows = job.candidates.aligned(served.ranker.feature_names_)
            except UnknownFeatureError as error:
                job.deliver(self.in_engine_order(job.candidates, Fallback.UNKNOWN_FEATURE, str(error)))
                continue
            some = groups.setdefault(job.candidates.kind, ([], []))
            some[0].append(job)
            some[1].append(rows)
        return groups.values()

    def in_engine_order(self, candidates: Candidates, reason: Fallback, detail: str) -> Ranking:
        """The candidates as they came."""
        return Ranking(candidates.ids, model=self._slot.name, fallback=reason, detail=detail)

    def _rank(self, served: Served, jobs: Sequence[Job], rows: list[Float32]) -> None:
        candidates = [job.candidates for job in jobs]
        start = time.perf_counter()
        try:
            queries = as_query_set(candidates, rows, served.ranker.feature_names_)
            scored = served.ranker.scored(queries)
        except Exception as error:
            if len(jobs) > 1:  # one of them is to blame; the others are not to suffer from it
                for job, own in zip(jobs, rows, strict=True):
                    self._rank(served, [job], [own])
                return
            jobs[0].deliver(self._failed(candidates[0], rows[0], error))
            return
        each = (time.perf_counter() - start) / len(jobs)
        for position, job in enumerate(jobs):
            self._observer.stage("rank", each)
            scores = scored.scores[queries.offsets[position] : queries.offsets[position + 1]]
            novelty = None if scored.novelty is None else float(scored.novelty[position])
            job.deliver(self._answer(served, job.candidates, scores, novelty))

    def _answer(
        self,
        served: Served,
        candidates: Candidates,
        scores: Float64,
        novelty: float | None,
    ) -> Ranking:
        if novelty is not None:
            self._observer.novelty(self._slot.name, novelty)
            if novelty > self._far:
                detail = f"novelty {novelty:.3g}, more than {self._far:.3g}: nothing like it was judged"
                return self.in_engine_order(candidates, Fallback.FAR, detail)
        if not np.isfinite(scores).all():
            return self.in_engine_order(candidates, Fallback.NOT_FINITE, "the model's scores are not numbers")
        order = np.argsort(-scores, kind="stable")  # ties stay in the engine's order
        ids = candidates.ids
        return Ranking(
            [ids[position] for position in order.tolist()],
            scores[order].tolist(),
            self._slot.name,
            served.version,
            novelty=novelty,
        )

    def _failed(self, candidates: Candidates, rows: Float32, error: Exception) -> Ranking:
        if isinstance(error, DataError) and not np.isfinite(rows).all():
            return self.in_engine_order(candidates, Fallback.NOT_FINITE, str(error))
        if isinstance(error, KinrankError):
            return self.in_engine_order(candidates, Fallback.MODEL_ERROR, str(error))
        self._observer.error("rank", error)
        return self.in_engine_order(candidates, Fallback.MODEL_ERROR, "the model failed; the log says how")
