from __future__ import annotations

import threading
import time

import pytest

from kinrank.engines.retry import ConcurrencyLimit, RetryingPool
from kinrank.errors import EngineBusyError, EngineRefusedError, ParameterError


def test_answers_come_in_the_order_of_the_questions():
    def slow_first(x: int) -> int:
        time.sleep(0.05 if x == 0 else 0.0)
        return x

    assert list(RetryingPool(4).map(slow_first, range(50))) == list(range(50))


def test_no_more_questions_than_workers_are_under_way_and_few_are_taken_ahead():
    under_way, most, taken = 0, 0, 0
    lock = threading.Lock()

    def questions():
        nonlocal taken
        for i in range(40):
            taken += 1
            yield i

    def ask(x: int) -> int:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        time.sleep(0.002)
        with lock:
            under_way -= 1
        return x

    for done, _ in enumerate(RetryingPool(3).map(ask, questions())):
        assert taken <= done + 1 + 2 * 3
    assert most <= 3


def test_a_busy_engine_is_asked_again_and_less_at_a_time():
    under_way, seen = 0, []
    lock = threading.Lock()
    all_at_once = threading.Barrier(4)

    def ask(x: int) -> int:
        nonlocal under_way
        with lock:
            under_way += 1
            number = len(seen)
            seen.append(under_way)
        try:
            if number < 4:
                all_at_once.wait()
                raise EngineBusyError("429")
            time.sleep(0.005)
            return x
        finally:
            with lock:
                under_way -= 1

    pool = RetryingPool(4, first_pause=0.05)
    assert list(pool.map(ask, range(12))) == list(range(12))
    assert pool.retries == 4
    assert max(seen[:4]) == 4
    assert max(seen[4:9]) <= 2  # one, and slowly more


def test_who_stops_does_not_wait_for_those_who_wait():
    pool = RetryingPool(4, first_pause=60.0)

    def ask(x: int) -> int:
        if x:
            raise EngineBusyError("429")
        while not pool.retries:  # someone pauses before he asks again
            time.sleep(0.001)
        raise EngineRefusedError("no such field")

    start = time.monotonic()
    with pytest.raises(EngineRefusedError, match="no such field"):
        list(pool.map(ask, range(4)))
    assert time.monotonic() - start < 20


def test_who_waits_for_room_does_not_ask_after_the_end():
    pool = RetryingPool(4)
    pool._gate.narrow()
    pool._gate.narrow()
    asked = []

    def ask(x: int) -> int:
        asked.append(x)
        time.sleep(0.2)
        raise EngineRefusedError("no such field")

    with pytest.raises(EngineRefusedError, match="no such field"):
        list(pool.map(ask, range(4)))
    assert len(asked) <= 2


def test_patience_ends():
    def ask(x: int) -> int:
        raise EngineBusyError("still busy")

    with pytest.raises(EngineBusyError, match="still busy"):
        list(RetryingPool(2, retry_for=0.05, first_pause=0.01).map(ask, range(3)))


def test_a_refusal_is_not_asked_again():
    asked = []

    def ask(x: int) -> int:
        asked.append(x)
        raise EngineRefusedError("no such field")

    with pytest.raises(EngineRefusedError, match="no such field"):
        list(RetryingPool(1).map(ask, range(9)))
    assert len(asked) <= 2


def test_a_gate_narrows_at_once_and_widens_slowly():
    gate = ConcurrencyLimit(8)
    for _ in range(9):
        gate.narrow()
    assert gate.width == 1
    gate.widen()
    assert gate.width == 2
    gate.widen()
    assert gate.width == 2.5
    for _ in range(100):
        gate.widen()
    assert gate.width == 8


def test_at_least_one_worker():
    with pytest.raises(ParameterError, match="workers must be at least 1, got 0"):
        RetryingPool(0)
