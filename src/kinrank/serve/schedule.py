"""Which waiting queries to rank next, so that as many as possible are ranked in time.

Under overload a first-come queue ranks every query just as its deadline passes. This one refuses a query that could
not be ranked in time behind those that wait, and drops one that cannot be in time any more before any work is spent
on it. Times come from the caller, so that tests need no clock.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field

from kinrank.serve.messages import CandidateSet, Ranking

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
