"""One ranking thread per model, which takes waiting queries in batches.

A single query is ranked at once. Under load, queries wait while the thread works and are then ranked together, at a
third of the cost per query. The thread also lingers for a moment if more queries are known to be on their way. The
event loop of a server stays free, so deadlines hold whatever the model does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from kinrank.serve.schedule import Job, Schedule


@dataclass(eq=False, repr=False)
class Batcher:
    """A thread and the jobs that wait for it."""

    work: Callable[[list[Job]], None]
    """Ranks a batch of jobs and delivers each ranking."""
    _: KW_ONLY
    on_batch: Callable[[int], None]
    """Called with the size of each batch."""
    on_drop: Callable[[Job], None]
    """Called with a job that can no longer be ranked in time."""
    on_error: Callable[[Exception], None]
    """Called if `work` raises, which it should not. The jobs of that batch run into their deadline."""
    schedule: Schedule
    """Decides which jobs are ranked next."""
    batch_size: int
    """Number of jobs for which the thread does not linger."""
    linger: float
    """Seconds to wait for jobs that are on their way."""
    expected: Callable[[], int]
    """Returns how many jobs are waiting or on their way."""
    name: str
    """Name of the thread."""

    def __post_init__(self) -> None:
        self._changed = threading.Condition()  # guards the schedule
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def __len__(self) -> int:
        """Return how many jobs wait."""
        return len(self.schedule)

    def submit(self, job: Job) -> bool:
        """Queue a job. Return False if it could not be ranked in time."""
        with self._changed:
            accepted = self.schedule.add(job, time.perf_counter())
            if accepted:
                self._changed.notify()
        return accepted

    def is_full(self, deadline: float) -> bool:
        """Return whether a further job with this deadline would be refused."""
        with self._changed:
            return self.schedule.is_full(time.perf_counter(), deadline, self.expected())

    def is_busy(self) -> bool:
        """Return whether jobs are being ranked or wait."""
        with self._changed:
            return not self.schedule.is_idle

    def close(self) -> None:
        """Stop the thread after the waiting jobs are done."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: len(self.schedule) or self._closed)
                if not len(self.schedule):
                    return
                self._wait_for_more()
                batch, dropped = self.schedule.take(time.perf_counter())
            for job in dropped:
                self.on_drop(job)
            if batch:
                self.on_batch(len(batch))
                self._rank(batch)

    def _rank(self, batch: list[Job]) -> None:
        start = time.perf_counter()
        try:
            self.work(batch)
        except Exception as error:  # the thread must survive for the next jobs
            self.on_error(error)
        with self._changed:
            self.schedule.finish(batch, time.perf_counter() - start)

    def _wait_for_more(self) -> None:
        """Linger while more jobs are known to be on their way."""
        until = time.perf_counter() + self.linger
        while len(self.schedule) < min(self.batch_size, self.expected()):
            left = until - time.perf_counter()
            if left <= 0 or not self._changed.wait(left):
                return
