"""One ranking thread per model, which takes all waiting queries as one batch.

A single query is ranked at once. Under load, queries wait while the thread works and are then ranked together, at a
third of the cost per query. The thread also lingers for a moment if more queries are known to be on their way. The
event loop of a server stays free, so deadlines hold whatever the model does.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field

from kinrank.serve.messages import CandidateSet, Ranking


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A query that waits for its ranking.

    Attributes
    ----------
    candidates : CandidateSet
        The query.
    submitted, expires : float
        When it was submitted and when its deadline ends, by `time.perf_counter`, which ignores changes of the clock.
    deliver : callable
        Called with the ranking, in the model's thread.
    context : Context
        Context variables of the caller, so that errors are logged with its request id.
    """

    candidates: CandidateSet
    submitted: float
    expires: float
    deliver: Callable[[Ranking], None]
    context: Context = field(default_factory=copy_context)


class Batcher:
    """A thread and the jobs that wait for it.

    Parameters
    ----------
    work
        Ranks a batch of jobs and delivers each ranking.
    on_error
        Called if `work` raises, which it should not. The jobs of that batch run into their deadline.
    backlog
        Maximum number of waiting jobs.
    batch_size
        Maximum number of jobs passed to `work` at once.
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
        on_error: Callable[[Exception], None],
        backlog: int,
        batch_size: int,
        linger: float,
        expected: Callable[[], int],
        name: str,
    ) -> None:
        self._work = work
        self._on_error = on_error
        self._backlog = backlog
        self._batch_size = batch_size
        self._linger = linger
        self._expected = expected
        self._waiting: deque[Job] = deque()
        self._wake = threading.Semaphore(0)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> bool:
        """Queue a job. Return False if too many are waiting already."""
        if len(self._waiting) >= self._backlog:
            return False
        self._waiting.append(job)
        self._wake.release()
        return True

    def close(self) -> None:
        """Stop the thread after the waiting jobs are done."""
        self._closed = True
        self._wake.release()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            self._wake.acquire()
            self._wait_for_more()
            jobs: list[Job] = []
            while self._waiting and len(jobs) < self._batch_size:
                jobs.append(self._waiting.popleft())
            if jobs:
                try:
                    self._work(jobs)
                except Exception as error:  # the thread must survive for the next jobs
                    self._on_error(error)
            elif self._closed:
                return

    def _wait_for_more(self) -> None:
        """Linger while more jobs are known to be on their way."""
        until = time.perf_counter() + self._linger
        while 0 < len(self._waiting) < min(self._batch_size, self._expected()):
            left = until - time.perf_counter()
            if left <= 0 or not self._wake.acquire(timeout=left):
                return
