"""A model that ranks live queries after they were answered, so that it can be compared with the one in use."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from scipy.stats import kendalltau

from kinrank.serve.messages import Ranking
from kinrank.serve.models import SESSION, ModelSlot, Rollout, is_chosen
from kinrank.serve.observer import Observer
from kinrank.serve.ranking import BatchRanker, Job

WAITING = 8
"""Queries that may wait for the shadow; further ones are dropped."""
TOP = 10
_STOP = None
_LOOKS, _PAUSE = 5, 0.001


@dataclass(eq=False, repr=False)
class Shadow:
    """A thread that ranks queries again while no query waits for its answer."""

    name: str
    """The name of the model."""
    slot: ModelSlot
    """The shadow model."""
    observer: Observer
    """Receives the comparisons."""
    is_busy: Callable[[], bool]
    """Returns whether queries are being ranked or wait; then the shadow drops its work."""

    def __post_init__(self) -> None:
        self._ranker = BatchRanker(
            Rollout({"current": self.slot}), max_novelty=math.inf, observer=_OnlyErrors(self.observer)
        )
        self._queue: queue.Queue[tuple[Job, Ranking] | None] = queue.Queue(WAITING)
        self._thread = threading.Thread(target=self._run, name=f"shadow-{self.name}", daemon=True)
        self._thread.start()

    def offer(self, job: Job, answer: Ranking) -> None:
        """Compare a ranking, if the query belongs to the shadow's share and there is time."""
        served = self.slot.current
        if served is None or not is_chosen(self.slot, served, job.candidates, job.context.get(SESSION)):
            return
        try:
            self._queue.put_nowait((job, answer))
        except queue.Full:
            self.observer.shadow_dropped(self.name)

    def close(self) -> None:
        """Stop after the current query."""
        while True:
            try:
                self._queue.put_nowait(_STOP)
                break
            except queue.Full:
                with suppress(queue.Empty):
                    self._queue.get_nowait()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while (work := self._queue.get()) is not _STOP:
            try:
                self._rank(*work)
            except Exception as error:  # the thread must survive for the next queries
                self.observer.error("shadow", error)

    def _rank(self, job: Job, answer: Ranking) -> None:
        if not self._is_idle():
            self.observer.shadow_dropped(self.name)
            return
        now = time.perf_counter()
        self._ranker([Job(job.candidates, now, math.inf, partial(self._compare, answer))])

    def _is_idle(self) -> bool:
        """Return whether no query is ranked or waits; the batch of this one may take a moment to end."""
        for _ in range(_LOOKS):
            if not self.is_busy():
                return True
            time.sleep(_PAUSE)
        return False

    def _compare(self, answer: Ranking, found: Ranking) -> None:
        position = {doc_id: rank for rank, doc_id in enumerate(found.ids)}
        top = min(TOP, len(answer.ids))
        overlap = len(set(answer.ids[:top]) & set(found.ids[:top])) / top
        tau = 1.0
        if len(answer.ids) > 1:
            tau = float(kendalltau(range(len(answer.ids)), [position[each] for each in answer.ids]).statistic)
        self.observer.shadow(self.name, answer, found, tau, overlap)


class _OnlyErrors(Observer):
    """Passes errors on; times and novelty of a shadow are not those of answers."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer

    def error(self, where: str, error: BaseException) -> None:
        self._observer.error(f"shadow-{where}", error)
