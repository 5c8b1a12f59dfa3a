"""One ranking thread per model, which takes waiting queries in batches.

A single query is ranked at once. Under load, queries wait while the thread works and are then ranked together, at a
third of the cost per query. The thread also lingers for a moment if more queries are known to be on their way. The
event loop of a server stays free, so deadlines hold whatever the model does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kinrank.serve.schedule import Job, Schedule


class Batcher:
    """A thread and the jobs that wait for it.

    Parameters
    ----------
    work
        Ranks a batch of jobs and delivers each ranking.
    on_batch
        Called with the size of each batch.
    on_drop
        Called with a job that can no longer be ranked in time.
    on_error
        Called if `work` raises, which it should not. The jobs of that batch run into their deadline.
    schedule
        Decides which jobs are ranked next.
    batch_size
        Number of jobs for which the thread does not linger.
    linger
        Seconds to wait for jobs that are on their way.
    expected
        Returns how many jobs are waiting or on their way.
    name
        Name of the thread.
    """

    def __init__(
        self,
        work: Callable[[list[Job]], None],
        *,
        on_batch: Callable[[int], None],
        on_drop: Callable[[Job], None],
        on_error: Callable[[Exception], None],
        schedule: Schedule,
        batch_size: int,
        linger: float,
        expected: Callable[[], int],
        name: str,
    ) -> None:
        self._work = work
        self._on_batch = on_batch
        self._on_drop = on_drop
        self._on_error = on_error
        self._schedule = schedule
        self._batch_size = batch_size
        self._linger = linger
        self._expected = expected
        self._changed = threading.Condition()  # guards the schedule
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Return how many jobs wait."""
        return len(self._schedule)

    def submit(self, job: Job) -> bool:
        """Queue a job. Return False if it could not be ranked in time."""
        with self._changed:
            accepted = self._schedule.add(job, time.perf_counter())
            if accepted:
                self._changed.notify()
        return accepted

    def is_full(self, deadline: float) -> bool:
        """Return whether a further job with this deadline would be refused."""
        with self._changed:
            return self._schedule.is_full(time.perf_counter(), deadline, self._expected())

    def is_busy(self) -> bool:
        """Return whether jobs are being ranked or wait."""
        with self._changed:
            return not self._schedule.is_idle

    def close(self) -> None:
        """Stop the thread after the waiting jobs are done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self._schedule) or self._closed)
                if not len(self._schedule):
                    return
                self._wait_for_more()
                batch, dropped = self._schedule.take(time.perf_counter())
            for job in dropped:
                self._on_drop(job)
            if batch:
                self._on_batch(len(batch))
                self._rank(batch)

    def _rank(self, batch: list[Job]) -> None:
        start = time.perf_counter()
        try:
            self._work(batch)
        except Exception as error:  # the thread must survive for the next jobs
            self._on_error(error)
        with self._changed:
            self._schedule.finish(batch, time.perf_counter() - start)

    def _wait_for_more(self) -> None:
        """Linger while more jobs are known to be on their way."""
        until = time.perf_counter() + self._linger
        while len(self._schedule) < min(self._batch_size, self._expected()):
            left = until - time.perf_counter()
            if left <= 0 or not self._changed.wait(left):
                return
