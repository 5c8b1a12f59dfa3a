"""Which queries are ranked under overload, in simulated time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kinrank.serve import CandidateSet
from kinrank.serve._ranking import Job, Schedule

DEADLINE = 0.05
SATURATION = 500.0  # jobs per second, in full batches


def job(submitted: float, expires: float, rows: int = 1) -> Job:
    ids = [str(row) for row in range(rows)]
    return Job(CandidateSet(ids, np.zeros((rows, 1), dtype=np.float32)), submitted, expires, lambda _: None)


def seconds_of(batch: list[Job]) -> float:
    """Return the true cost: a batch of 16 takes 32 ms, a single job 5 ms."""
    return 0.0032 + 0.0018 * len(batch)


def simulate(load: float, *, seconds: float = 5.0, cost: Callable[[list[Job]], float] = seconds_of) -> list[float]:
    """Return the latencies of the ranked jobs when they arrive at random with `load` times the saturation rate."""
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(1 / (load * SATURATION), int(seconds * load * SATURATION))).tolist()
    schedule = Schedule(backlog=64, batch_size=16)
    latencies: list[float] = []
    now, position = 0.0, 0

    def arrive(until: float) -> None:
        nonlocal position
        while position < len(arrivals) and arrivals[position] <= until:
            schedule.add(job(arrivals[position], arrivals[position] + DEADLINE), arrivals[position])
            position += 1

    while position < len(arrivals):
        now = max(now, arrivals[position]) if not len(schedule) else now
        arrive(now)
        batch, _ = schedule.take(now)
        if batch:
            start, now = now, now + cost(batch)
            arrive(now)
            schedule.finish(batch, now - start)
            latencies += [now - each.submitted for each in batch]
    return latencies


@pytest.mark.parametrize("load", [1.0, 2.0, 5.0])
def test_overload_is_answered_in_time_at_the_rate_of_saturation(load: float):
    latencies = np.array(simulate(load))
    in_time = latencies <= DEADLINE
    assert in_time.sum() / 5.0 >= 0.8 * SATURATION
    assert in_time.mean() > 0.99


def test_job_behind_a_queue_longer_than_its_deadline_is_refused():
    schedule = Schedule(backlog=64, batch_size=4)
    first = job(0.0, 0.05)
    assert schedule.add(first, 0.0)
    batch, _ = schedule.take(0.0)
    schedule.finish(batch, 0.01)
    accepted = [schedule.add(job(1.0, 1.05), 1.0) for _ in range(8)]
    assert accepted == [True] * 4 + [False] * 4  # 10 ms each, and 7.5 ms for the response
    assert schedule.is_full(1.0, 0.05)
    assert not schedule.is_full(1.0, 0.5)


def test_requests_whose_bodies_are_being_read_count_as_waiting():
    schedule = Schedule(backlog=64, batch_size=4)
    assert schedule.add(job(0.0, 0.05), 0.0)
    batch, _ = schedule.take(0.0)
    schedule.finish(batch, 0.01)
    # 10 ms each; 40% of the deadline are kept for reading the body and sending the response.
    assert [schedule.is_full(1.0, 0.05, coming) for coming in range(4)] == [False, False, False, True]


def test_job_that_cannot_be_in_time_is_dropped_before_it_is_ranked():
    schedule = Schedule(backlog=64, batch_size=4)
    schedule.add(job(0.0, 1.0), 0.0)
    schedule.finish(schedule.take(0.0)[0], 0.01)
    old, young = job(1.0, 1.05), job(1.0, 1.2)
    for each in (young, old):
        assert schedule.add(each, 1.0)
    batch, dropped = schedule.take(1.045)
    assert (batch, dropped) == ([young], [old])


def test_batch_is_bounded_by_the_earliest_deadline_in_it():
    schedule = Schedule(backlog=64, batch_size=16)
    schedule.add(job(0.0, 1.0), 0.0)
    schedule.finish(schedule.take(0.0)[0], 0.01)
    jobs = [job(1.0, 1.1) for _ in range(8)]
    assert all(schedule.add(each, 1.0) for each in jobs)
    batch, dropped = schedule.take(1.03)  # 55 ms are left of the 85
    assert (len(batch), dropped, len(schedule)) == (5, [], 3)


def test_earliest_deadline_goes_first():
    schedule = Schedule(backlog=64, batch_size=1)
    late, early = job(0.0, 2.0), job(0.0, 1.0)
    for each in (late, early):
        schedule.add(each, 0.0)
    assert schedule.take(0.0)[0] == [early]
    assert schedule.take(0.0)[0] == [late]


def test_estimate_recovers_from_a_pause_of_the_machine():
    pauses = iter([0.0] * 20 + [0.5])
    latencies = simulate(2.0, cost=lambda batch: seconds_of(batch) + next(pauses, 0.0))
    assert sum(each <= DEADLINE for each in latencies) / 4.5 >= 0.8 * SATURATION


def test_an_idle_model_tries_any_job():
    schedule = Schedule(backlog=64, batch_size=1)
    schedule.add(job(0.0, 1.0), 0.0)
    schedule.finish(schedule.take(0.0)[0], 9.0)
    assert schedule.add(job(10.0, 10.05, rows=1000), 10.0)
    assert len(schedule.take(10.0)[0]) == 1
