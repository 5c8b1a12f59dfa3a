from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kinrank.engines import base
from kinrank.engines.base import ConcurrencyLimit, RetryingPool
from kinrank.errors import EngineBusyError, EngineRefusedError, ParameterError
from tests.processes import PATIENCE, wait_until

FOREVER = 1e6
"""A pause in seconds that ends only by interruption."""


def test_results_keep_the_order_of_the_items():
    others_done = threading.Event()

    def first_is_last(x: int) -> int:
        if x == 0:
            assert others_done.wait(PATIENCE)
        if x == 3:
            others_done.set()
        return x

    assert list(RetryingPool(4).map(first_is_last, range(50))) == list(range(50))


def test_map_limits_concurrency_and_consumes_few_items_ahead():
    in_flight, most, consumed = 0, 0, 0
    lock = threading.Lock()
    three_at_once = threading.Barrier(3, timeout=PATIENCE)

    def items() -> Iterator[int]:
        nonlocal consumed
        for i in range(39):
            consumed += 1
            yield i

    def call(x: int) -> int:
        nonlocal in_flight, most
        with lock:
            in_flight += 1
            most = max(most, in_flight)
        three_at_once.wait()
        with lock:
            in_flight -= 1
        return x

    for done, _ in enumerate(RetryingPool(3).map(call, items())):
        assert consumed <= done + 1 + 2 * 3
    assert most == 3


def test_busy_engine_gets_fewer_requests_at_a_time():
    in_flight, concurrency = 0, []
    lock = threading.Lock()
    four_at_once = threading.Barrier(4, timeout=PATIENCE)
    limits = []

    def call(x: int) -> int:
        nonlocal in_flight
        with lock:
            in_flight += 1
            number = len(concurrency)
            concurrency.append(in_flight)
        try:
            if number < 4:
                four_at_once.wait()
                raise EngineBusyError("429")
            wait_until(lambda: pool.retries == 4)
            limits.append(pool.limit.value)
            return x
        finally:
            with lock:
                in_flight -= 1

    pool = RetryingPool(4, first_pause=0.05)
    assert list(pool.map(call, range(12))) == list(range(12))
    assert pool.retries == 4
    assert max(concurrency[:4]) == 4
    assert min(limits) == 1
    assert max(concurrency[4:9]) <= 2


def test_error_interrupts_the_pauses_of_other_requests():
    pool = RetryingPool(4, retry_for=2 * FOREVER, first_pause=FOREVER)

    def call(x: int) -> int:
        if x:
            raise EngineBusyError("429")
        wait_until(lambda: pool.retries)
        raise EngineRefusedError("no such field")

    with pytest.raises(EngineRefusedError, match="no such field"):
        list(pool.map(call, range(4)))


def test_requests_waiting_for_a_slot_are_not_sent_after_an_error(monkeypatch: pytest.MonkeyPatch):
    ending = threading.Event()
    all_submitted = threading.Event()

    class Executor(ThreadPoolExecutor):
        def shutdown(self, *args: Any, **options: Any) -> None:
            ending.set()
            super().shutdown(*args, **options)

    def items() -> Iterator[int]:
        yield from range(4)
        all_submitted.set()

    def call(x: int) -> int:
        called.append(x)
        if len(called) == 1:
            assert all_submitted.wait(PATIENCE)
            raise EngineRefusedError("no such field")
        assert ending.wait(PATIENCE)
        return x

    monkeypatch.setattr(base, "ThreadPoolExecutor", Executor)
    called: list[int] = []
    pool = RetryingPool(4)
    for _ in range(2):
        pool.limit.decrease()
    with pytest.raises(EngineRefusedError, match="no such field"):
        list(pool.map(call, items()))
    assert len(called) <= 2


def test_last_error_is_raised_when_the_time_for_retries_ends():
    def call(x: int) -> int:
        raise EngineBusyError("still busy")

    with pytest.raises(EngineBusyError, match="still busy"):
        list(RetryingPool(2, retry_for=0.05, first_pause=0.01).map(call, range(3)))


def test_rejected_request_is_not_retried():
    called = []

    def call(x: int) -> int:
        called.append(x)
        raise EngineRefusedError("no such field")

    with pytest.raises(EngineRefusedError, match="no such field"):
        list(RetryingPool(1).map(call, range(9)))
    assert len(called) <= 2


def test_limit_halves_at_once_and_increases_slowly():
    limit = ConcurrencyLimit(8)
    for _ in range(9):
        limit.decrease()
    assert limit.value == 1
    limit.increase()
    assert limit.value == 2
    limit.increase()
    assert limit.value == 2.5
    for _ in range(100):
        limit.increase()
    assert limit.value == 8


def test_pool_needs_a_worker():
    with pytest.raises(ParameterError, match="workers must be at least 1, got 0"):
        RetryingPool(0)
