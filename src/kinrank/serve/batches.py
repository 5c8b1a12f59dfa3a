"""One ranking thread per model, which takes waiting queries in batches, so that as many as possible are ranked in time.

A single query is ranked at once. Under load, queries wait while the thread works and are then ranked together, at a
third of the cost per query. The thread also lingers for a moment if more queries are known to be on their way. The
event loop of a server stays free, so deadlines hold whatever the model does.
"""

from __future__ import annotations

import threading
import time
from bisect import insort
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import KW_ONLY, dataclass, field

from kinrank.serve.messages import CandidateSet, Ranking

# --- which waiting queries to rank next, so that as many as possible are ranked in time -------------------------------
#
# Under overload a first-come queue ranks every query just as its deadline passes. This one refuses a query that could
# not be ranked in time behind those that wait, and drops one that cannot be in time any more before any work is spent
# on it. Times come from the caller, so that tests need no clock.


_ROWS_PER_UNIT = 64  # candidates whose scores take about as long as learning the local model of their query
_MEMORY = 0.8  # weight of the earlier measurements in the estimated cost
_MAX_RISE = 3.0  # a pause of the machine must not count as the cost of a query
_RESERVE = 0.15  # share of a job's time that is kept for sending the response
_HEAD_RESERVE = 0.4  # the same for a job whose body is still to be read and parsed


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """A query that waits for its ranking."""

    candidates: CandidateSet
    """The query."""
    submitted: float
    expires: float
    """When it was submitted and when its deadline ends, by `time.perf_counter`, which ignores changes of the clock."""
    deliver: Callable[[Ranking], None]
    """Called with the ranking, in the model's thread."""
    context: Context = field(default_factory=copy_context)
    """Context variables of the caller, so that errors are logged with its request id."""

    @property
    def units(self) -> float:
        """Return the expected work, relative to that of other queries."""
        return 1 + len(self.candidates.ids) / _ROWS_PER_UNIT

    @property
    def due(self) -> float:
        """Return when it must be ranked for its response to be in time."""
        return self.expires - _RESERVE * (self.expires - self.submitted)


class Schedule:
    """The jobs that wait for a model, and an estimate of how long they take.

    Parameters
    ----------
    backlog
        Maximum number of waiting jobs.
    batch_size
        Maximum number of jobs to rank at once.

    Examples
    --------
    >>> import numpy as np
    >>> query = CandidateSet(["a"], np.zeros((1, 1), dtype=np.float32))
    >>> schedule = Schedule(backlog=8, batch_size=4)
    >>> schedule.add(Job(query, 0.0, 1.0, print), now=0.0)
    True
    >>> batch, dropped = schedule.take(now=0.1)
    >>> len(batch), len(dropped)
    (1, 0)
    >>> schedule.finish(batch, seconds=0.5)
    >>> schedule.wait(now=0.6), schedule.estimate(batch)
    (0.0, 0.5)
    """

    def __init__(self, *, backlog: int, batch_size: int) -> None:
        self._backlog = backlog
        self._batch_size = batch_size
        self._waiting: list[Job] = []  # by `expires`
        self._units = 0.0
        self._ranking = 0
        self._busy_until = 0.0
        self._seconds_per_unit = 0.0
        self._mean_units = 1.0

    def __len__(self) -> int:
        return len(self._waiting)

    def estimate(self, jobs: list[Job]) -> float:
        """Return the expected seconds to rank jobs together."""
        return self._seconds_per_unit * sum(job.units for job in jobs)

    def wait(self, now: float) -> float:
        """Return the expected seconds until a further job would be started."""
        return max(0.0, self._busy_until - now) + self._seconds_per_unit * self._units

    def is_full(self, now: float, deadline: float, expected: int = 0) -> bool:
        """Return whether a further job of the usual size with this deadline would be refused.

        `expected` jobs are being ranked, wait, or are about to be added before it.
        """
        coming = max(0, expected - len(self._waiting) - self._ranking)
        if self.is_idle and not coming:
            return False
        own = (1 + coming) * self._seconds_per_unit * self._mean_units
        return len(self._waiting) + coming >= self._backlog or self.wait(now) + own > (1 - _HEAD_RESERVE) * deadline

    def add(self, job: Job, now: float) -> bool:
        """Add a job. Return False if it could not be ranked in time. An idle model accepts any job."""
        late = now + self.wait(now) + self.estimate([job]) > job.due
        if len(self._waiting) >= self._backlog or (late and not self.is_idle):
            return False
        insort(self._waiting, job, key=lambda each: each.expires)
        self._units += job.units
        return True

    def take(self, now: float) -> tuple[list[Job], list[Job]]:
        """Remove and return the jobs to rank next, and those that can no longer be in time.

        The batch is the largest whose jobs are all in time, and among those the one with the earliest deadlines. If
        none would be in time, the job with the latest deadline is tried: the estimate may be too high.
        """
        best, start = 0, len(self._waiting) - 1
        for first in range(len(self._waiting)):
            if best >= min(self._batch_size, len(self._waiting) - first):  # a later start has no more
                break
            if (count := self._fitting(first, now)) > best:
                best, start = count, first
        if best == 0 and self._waiting and self._waiting[-1].expires > now:
            best = 1
        dropped, batch = self._waiting[: start if best else None], self._waiting[start : start + best]
        self._waiting = self._waiting[start + best :] if best else []
        self._units = sum(job.units for job in self._waiting)
        self._ranking, self._busy_until = len(batch), now + self.estimate(batch)
        return batch, dropped

    def finish(self, batch: list[Job], seconds: float) -> None:
        """Learn from the time that a batch took."""
        units = sum(job.units for job in batch)
        measured, known = seconds / units, self._seconds_per_unit
        self._mean_units += (1 - _MEMORY) * (units / len(batch) - self._mean_units)
        self._seconds_per_unit = (
            measured if known == 0 else known + (1 - _MEMORY) * (min(measured, _MAX_RISE * known) - known)
        )
        self._ranking, self._busy_until = 0, 0.0

    @property
    def is_idle(self) -> bool:
        """Whether no job is being ranked or waits."""
        return not self._waiting and not self._ranking

    def _fitting(self, first: int, now: float) -> int:
        """Return how many jobs, starting with one, can be ranked together before that one is due."""
        budget, units = self._waiting[first].due - now, 0.0
        for count, job in enumerate(self._waiting[first : first + self._batch_size]):
            units += job.units
            if self._seconds_per_unit * units > budget:
                return count
        return min(self._batch_size, len(self._waiting) - first)


# --- one ranking thread per model, which takes waiting queries in batches ---------------------------------------------


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
