"""Ranking of batches: which waiting queries to take next, one thread per model, and a result for every query."""

from __future__ import annotations

import hashlib
import threading
import time
from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

import numpy as np

from kinrank.arrays import Float32, Float64, Int64
from kinrank.serve._models import ModelSlot
from kinrank.serve._served_model import ServedModel
from kinrank.serve.messages import CandidateSet, Fallback, Observer, Ranking, failure_in, failure_of, to_query_set

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


# --- lists that try out documents of which little is known: which lists, and which documents --------------------------
#
# One document of the first `WINDOW` moves up to one of the first places. It is the one that is drawn the furthest above
# its expected rate of choices: the less is known of a document, the more often it is tried out.


WINDOW = 20
"""Documents below this place are not tried out."""
PLACES = 2, 6
"""The first and the last place at which a document is tried out; the best one stays first."""


class Draw(NamedTuple):
    """What decides which document a list tries out."""

    seed: int
    """Decides the draw."""
    propensity: float
    """The probability that a list tries out a document."""


DRAW: ContextVar[Draw | None] = ContextVar("draw", default=None)
"""What decides which document the list of the request tries out; None for none."""


def draw_for(query_id: str, share: float) -> Draw | None:
    """Return what a list tries out, always the same for an id; None for all but a share of the ids.

    Examples
    --------
    >>> sum(draw_for(str(number), 0.1) is not None for number in range(1000))
    100
    """
    if not share:
        return None
    digest = hashlib.blake2b(query_id.encode(errors="surrogatepass"), digest_size=16).digest()
    chosen = int.from_bytes(digest[:8]) < share * 2**64
    return Draw(int.from_bytes(digest[8:]), share) if chosen else None


def explored_order(order: Int64, expected: Float64, drawn: Float64, seed: int) -> Int64:
    """Return an order in which one of the first candidates moves up.

    Parameters
    ----------
    order
        The candidates, best first.
    expected
        The expected rate of choices of each candidate.
    drawn
        A rate drawn from what it may be.
    seed
        Decides the place.

    Examples
    --------
    >>> rates = np.array([0.9, 0.8, 0.7, 0.6])
    >>> explored_order(np.arange(4), rates, rates + [0.0, 0.0, 0.0, 0.2], seed=1).tolist()
    [0, 1, 3, 2]
    """
    first, last = PLACES
    window = min(len(order), WINDOW)
    if window <= first:  # nothing is below the first place at which a document is tried out
        return order
    place = first - 1 + seed % (min(last, window - 1) - first + 1)
    below = order[place + 1 : window]
    chosen = place + 1 + int(np.argmax(drawn[below] - expected[below]))
    return np.concatenate([order[:place], order[chosen : chosen + 1], order[place:chosen], order[chosen + 1 :]])


# --- one ranking thread per model, which takes waiting queries in batches ---------------------------------------------
#
# A single query is ranked at once. Under load, queries wait while the thread works and are then ranked together, at a
# third of the cost per query. The thread also lingers for a moment if more queries are known to be on their way. The
# event loop of a server stays free, so deadlines hold whatever the model does.


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

    slot: ModelSlot
    """The model."""
    _: KW_ONLY
    max_novelty: float
    """Queries with a higher novelty stay in the engine's order."""
    observer: Observer
    """Receives stage times, novelty, results and errors."""

    def __post_init__(self) -> None:
        self._name = self.slot.name

    def __call__(self, jobs: list[Job]) -> None:
        """Rank every job and deliver its ranking."""
        start = time.perf_counter()
        served = self.slot.current
        for job in jobs:
            job.context.run(self.observer.stage, "wait", start - job.submitted)
            if served is None:
                job.deliver(self.in_engine_order(job.candidates, Fallback.NO_MODEL, "no model is loaded"))
        if served is not None:
            for group in self._aligned(served, jobs):
                self._rank(served, group)

    def drop(self, job: Job) -> None:
        """Deliver the engine's order, unless the deadline has passed: then the caller has answered already."""
        served = self.slot.current
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

    def _deliver(self, served: ServedModel, job: Job, ranking: Ranking) -> None:
        job.deliver(ranking)
        # The caller has used the engine's order since the deadline.
        reason = Fallback.LATE if time.perf_counter() > job.expires else ranking.fallback
        self.observer.result(self._name, served.fitted, reason)

    def _rank(self, served: ServedModel, group: Sequence[_Ready]) -> None:
        start = time.perf_counter()
        try:
            candidates, rows = [each.candidates for each in group], [each.rows for each in group]
            queries = to_query_set(candidates, rows, served.ranker.feature_names_)
            draw = group[0].draw
            predicted = served.ranker.predict_with_novelty(queries)
            rates = None if draw is None or served.choices is None else served.choices.draw(queries, draw.seed)
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
            if job.candidates.pinned:
                order = keep_places(order, [document in job.candidates.pinned for document in job.candidates.ids])
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


def keep_places(order: Int64, pinned: Sequence[bool]) -> Int64:
    """Return an order in which pinned candidates are at the places where they came, and the others around them.

    Examples
    --------
    >>> keep_places(np.array([4, 3, 2, 1, 0]), [True, False, False, True, False]).tolist()
    [0, 4, 2, 3, 1]
    """
    free = ~np.array(pinned)
    kept = np.arange(len(order))
    kept[free] = order[free[order]]
    return kept
