from __future__ import annotations

import threading
import time

import pytest

from kinrank.engines.patience import Gate, PatientPool
from kinrank.errors import EngineBusyError, EngineRefusedError, ParameterError


def test_answers_come_in_the_order_of_the_questions():
    def slow_first(x: int) -> int:
        time.sleep(0.05 if x == 0 else 0.0)
        return x

    assert list(PatientPool(4).map(slow_first, range(50))) == list(range(50))


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

    for done, _ in enumerate(PatientPool(3).map(ask, questions())):
        assert taken <= done + 1 + 2 * 3
    assert most <= 3


def test_a_busy_engine_is_asked_again_and_less_at_a_time():
    tries: dict[int, int] = {}

    def ask(x: int) -> int:
        tries[x] = tries.get(x, 0) + 1
        if tries[x] < 3:
            raise EngineBusyError("429")
        return x

    pool = PatientPool(4, first_pause=0.001)
    assert list(pool.map(ask, range(5))) == list(range(5))
    assert pool.repeated == 10


def test_patience_ends():
    def ask(x: int) -> int:
        raise EngineBusyError("still busy")

    with pytest.raises(EngineBusyError, match="still busy"):
        list(PatientPool(2, patience=0.05, first_pause=0.01).map(ask, range(3)))


def test_a_refusal_is_not_asked_again():
    asked = []

    def ask(x: int) -> int:
        asked.append(x)
        raise EngineRefusedError("no such field")

    with pytest.raises(EngineRefusedError, match="no such field"):
        list(PatientPool(1).map(ask, range(9)))
    assert len(asked) <= 2


def test_a_gate_narrows_at_once_and_widens_slowly():
    gate = Gate(8)
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
        PatientPool(0)
