"""One thread per model: it ranks in one go whatever has come in since it last looked.

Alone, a query is ranked at once. Under load several wait while the thread works, and the next pass takes them together,
which costs a third of one by one; for those that are on their way the thread waits a moment. The event loop of a server
stays free in the meantime, so a deadline holds whatever the model does.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from kinrank.serve.messages import Candidates, Ranking


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A query that waits for its ranking.

    Attributes
    ----------
    candidates : Candidates
        The query.
    asked, expires : float
        When it came and until when an answer is of use, by `time.perf_counter`, which no change of the clock moves.
    deliver : callable
        Takes the ranking, in the thread of the model.
    """

    candidates: Candidates
    asked: float
    expires: float
    deliver: Callable[[Ranking], None]


class Batcher:
    """A thread and what waits for it.

    Parameters
    ----------
    work
        Ranks some jobs and delivers each.
    failed
        Told where `work` fails, which it should not; its jobs are left to their deadline.
    backlog
        How many jobs may wait.
    batch
        How many are given to `work` at once.
    linger
        Seconds to wait for jobs that are on their way.
    coming
        How many jobs are on their way or here.
    """

    def __init__(
        self,
        work: Callable[[list[Job]], None],
        *,
        failed: Callable[[Exception], None],
        backlog: int,
        batch: int,
        linger: float,
        coming: Callable[[], int],
        name: str,
    ) -> None:
        self._work = work
        self._failed = failed
        self._backlog = backlog
        self._batch = batch
        self._linger = linger
        self._coming = coming
        self._waiting: deque[Job] = deque()
        self._news = threading.Semaphore(0)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> bool:
        """Take a job; False where too many wait already."""
        if len(self._waiting) >= self._backlog:
            return False
        self._waiting.append(job)
        self._news.release()
        return True

    def close(self) -> None:
        """End the thread when what waits is done."""
        self._closed = True
        self._news.release()
        self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            self._news.acquire()
            self._wait_for_more()
            jobs: list[Job] = []
            while self._waiting and len(jobs) < self._batch:
                jobs.append(self._waiting.popleft())
            if jobs:
                try:
                    self._work(jobs)
                except Exception as error:  # the thread must be there for the next ones
                    self._failed(error)
            elif self._closed:
                return

    def _wait_for_more(self) -> None:
        """Not for long, and only while somebody is known to come."""
        until = time.perf_counter() + self._linger
        while 0 < len(self._waiting) < min(self._batch, self._coming()):
            left = until - time.perf_counter()
            if left <= 0 or not self._news.acquire(timeout=left):
                return
