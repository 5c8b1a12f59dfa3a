"""An engine that fails is asked less often, and is used again once it is back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kinrank.engines.lucene import response_error
from kinrank.errors import (
    EngineBusyError,
    EngineError,
    EngineFailedError,
    EngineRefusedError,
    EngineTimeoutError,
    EngineUnreachableError,
    KinrankError,
    ParameterError,
)
from kinrank.serve._circuit import CircuitBreaker, RetryBudget
from tests.serve.asgi import Client
from tests.serve.engine import InMemoryEngine


class FailingEngine(InMemoryEngine):
    """An engine that counts requests and raises `error`, with features or in every request."""

    def __init__(self) -> None:
        super().__init__([0.3, 0.9, 0.1, 0.6])
        self.requests: Counter[str] = Counter()
        self.error: EngineError | None = None
        self.always = True

    def search_features(self, query: str, **options: Any) -> Any:
        self.requests["features"] += 1
        if self.error is not None:
            raise self.error
        return super().search_features(query, **options)

    def search(self, query: str, **options: Any) -> Any:
        if self.error is not None:
            self.requests["search"] += 1
            if self.always:
                raise self.error
        return super().search(query, **options)


def fail(error: Exception) -> Callable[[], None]:
    def request() -> None:
        raise error

    return request


def test_breaker_lets_one_call_through_after_each_pause():
    now = [0.0]
    sent: list[float] = []
    breaker = CircuitBreaker("search", failures=3, pause=1.0, longest_pause=4.0, clock=lambda: now[0])

    def request() -> None:
        sent.append(now[0])
        raise EngineTimeoutError("slow")

    for step in range(160):
        now[0] = step / 10
        with pytest.raises(EngineError, match="slow"):
            breaker.call(request)
    assert sent == pytest.approx([0.0, 0.1, 0.2, 1.2, 3.2, 7.2, 11.2, 15.2])
    now[0] = 20.0
    assert breaker.call(lambda: "back") == "back"
    assert not breaker.is_open
    with pytest.raises(EngineTimeoutError):
        breaker.call(request)
    assert breaker.call(lambda: "one failure is not three") == "one failure is not three"


@pytest.mark.parametrize(
    ("error", "opens"),
    [
        (EngineUnreachableError("down"), True),
        (EngineTimeoutError("slow"), True),
        (EngineBusyError("429"), True),
        (EngineFailedError("500"), True),
        (EngineRefusedError("400"), False),
    ],
)
def test_only_errors_of_the_engine_open_a_breaker(error: EngineError, opens: bool):
    breaker = CircuitBreaker("search", failures=2)
    for _ in range(2):
        with pytest.raises(type(error)):
            breaker.call(fail(error))
    assert breaker.is_open is opens


@pytest.mark.parametrize("wrong", [EngineRefusedError("400"), ParameterError("no vector")])
def test_wrong_requests_neither_close_a_breaker_nor_take_the_turn_of_others(wrong: Exception):
    now, sent = [0.0], []
    breaker = CircuitBreaker("search", failures=5, pause=1.0, longest_pause=4.0, clock=lambda: now[0])

    def request() -> None:
        sent.append(now[0])
        raise EngineUnreachableError("down")

    for step in range(150):
        now[0] = step / 10
        with pytest.raises(KinrankError):
            breaker.call(fail(wrong) if step % 4 == 3 else request)
    assert len(sent) == 9, "five until it opens, then one after 1, 2, 4 and 4 s"
    now[0] += 5.0
    with pytest.raises(type(wrong)):
        breaker.call(fail(wrong))
    assert breaker.call(lambda: "back") == "back"
    assert not breaker.is_open


def test_budget_is_a_share_of_the_requests():
    budget = RetryBudget(share=0.1, burst=2)
    granted = 0
    for _ in range(1000):
        budget.earn()
        granted += budget.spend()
    assert 100 <= granted <= 102


@pytest.mark.parametrize("error", [EngineBusyError("overloaded (429)"), EngineFailedError("failed (500)")])
def test_failing_engine_is_not_asked_twice_for_every_search(make_client: Callable[..., Client], error: EngineError):
    engine = FailingEngine()
    client = make_client(engine=engine)
    engine.error = error
    answers = [client.post("/v1/search", {"query": "up"}) for _ in range(60)]
    assert {answer.status for answer in answers} <= {502, 503}
    assert sum(engine.requests.values()) < 25, engine.requests
    engine.error = None
    assert client.post("/v1/search", {"query": "up"}).status == 503, "refused without a request, for a second"


def test_engine_that_cannot_compute_features_gets_one_request_per_search(make_client: Callable[..., Client]):
    engine = FailingEngine()
    client = make_client(engine=engine)
    engine.error, engine.always = EngineTimeoutError("features took too long"), False
    answers = [client.post("/v1/search", {"query": "up"}) for _ in range(60)]
    assert {(answer.status, answer.json["fallback"]) for answer in answers} == {(200, "engine-down")}
    assert engine.requests["search"] == 60
    assert engine.requests["features"] <= 8


def test_error_inside_the_engine_is_reported_as_one(make_client: Callable[..., Client]):
    engine = FailingEngine()
    client = make_client(engine=engine)
    body = {"error": {"type": "null_pointer_exception", "reason": "oops"}}
    engine.error = response_error(500, body, "elasticsearch")
    answer = client.post("/v1/search", {"query": "up"})
    assert (answer.status, answer.code) == (502, "engine-failed")
    assert "null_pointer_exception" in answer.json["error"]["message"]
