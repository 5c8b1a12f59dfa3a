"""Logs and the ranking thread survive failures, and unexpected errors are logged with their traceback."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import numpy as np
import pytest

from kinrank import KnnRanker
from kinrank.errors import DamagedFolderError, StoreUnavailableError
from kinrank.registry import import_extra
from kinrank.serve import CandidateSet, Fallback, Ranking, Service
from kinrank.serve._events.log import EvidenceFeed
from kinrank.serve._http.logs import JsonLog, log_event
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.run import log_libraries
from tests.processes import PATIENCE, wait_until
from tests.serve.asgi import Client
from tests.serve.conftest import PATIENT, LogReader
from tests.serve.observers import RecordingObserver

DOCS = Path(__file__).parents[2] / "docs"
UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}


class FullDisk(io.StringIO):
    """A stream that rejects writes while it is full."""

    def __init__(self) -> None:
        super().__init__()
        self.full = True
        self.rejected = 0

    def write(self, text: str) -> int:
        if self.full:
            self.rejected += 1
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_log_continues_when_the_disk_has_space_again():
    stream = FullDisk()
    log = JsonLog(stream, logging.getLogger("kinrank")).start()
    for number in range(3):
        log_event("lost", number=number)
    wait_until(lambda: stream.rejected == 3)
    stream.full = False
    log_event("kept")
    log_event("not serializable", value=object())
    log_event("last")
    log.close()
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(event["event"], event.get("lines")) for event in events] == [
        ("kept", None),
        ("dropped", 3),
        ("last", None),
        ("dropped", 1),
    ]


class BlockedPipe(io.StringIO):
    """A stream that blocks until its reader is back."""

    def __init__(self) -> None:
        super().__init__()
        self.blocked, self.reader_is_back = threading.Event(), threading.Event()

    def write(self, text: str) -> int:
        self.blocked.set()
        assert self.reader_is_back.wait(PATIENCE)
        return super().write(text)


def test_lines_are_dropped_while_too_many_wait(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kinrank.serve._http.logs._MAX_WAITING", 2)
    stream = BlockedPipe()
    log = JsonLog(stream, logging.getLogger("kinrank")).start()
    log_event("line", number=0)
    assert stream.blocked.wait(PATIENCE)
    for number in range(1, 6):
        log_event("line", number=number)
    stream.reader_is_back.set()
    log.close()
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(event["event"], event.get("number", event.get("lines"))) for event in events] == [
        ("line", 0),
        ("line", 1),
        ("dropped", 3),
        ("line", 2),
    ]


def test_library_records_are_logged_with_their_traceback(log: LogReader):
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("kinrank.other").exception("failed %d times", 3)
    (line,) = log.wait_for("server")
    assert (line["level"], line["message"]) == ("error", "failed 3 times")
    assert line["traceback"].endswith("ValueError: broken")


def test_words_to_look_for_in_the_runbooks_are_those_of_the_log(log: LogReader):
    """While the database is away, which is what the alert about choices that are not counted is about."""

    def away(*_: object, **__: object) -> NoReturn:
        raise StoreUnavailableError("the database is away")

    metrics = Metrics()
    store = SimpleNamespace(read=away)
    feed = EvidenceFeed("default", store, lambda: 0, metrics)
    feed.update(SimpleNamespace(choices=True, fitted="0123456789ab", ranker=SimpleNamespace(recent_=None)))
    metrics.error("events", OSError("the database is away"))
    log.wait_for("model")
    log.wait_for("error")
    for page in ("runbook.md", "on-call.md"):
        [row] = [
            line for line in (DOCS / page).read_text().splitlines() if line.startswith("| `KinrankChoicesNotCounted`")
        ]
        words = re.findall(r'`("\w+":"[\w-]+")`', row)
        assert len(words) == 2
        assert [word for word in words if word not in log.text] == []


@pytest.mark.parametrize("error", [RuntimeError("broken"), DamagedFolderError("broken")])
def test_unexpected_error_is_logged_with_traceback_and_request_id(
    make_client: Callable[..., Client],
    secrets: dict[str, str],
    log: LogReader,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
):
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(Service, "judge", fail)
    client = make_client(keys=True, key=secrets["admin"])
    body = {"queries": [{"qid": "900", **UP, "grades": [0, 2, 1]}]}
    response = client.post("/v1/judgments", body, x_request_id="mine-1")
    assert (response.status, response.code) == (500, "internal")
    assert "log" in response.json["error"]["message"]
    (line,) = log.wait_for("error")
    assert (line["where"], line["request_id"]) == ("/v1/judgments", "mine-1")
    assert "in fail" in line["traceback"]
    assert line["traceback"].endswith(f"{type(error).__name__}: broken")
    assert [line["status"] for line in log.wait_for("request")] == [500]


def test_failure_of_a_model_is_logged_with_traceback_and_request_id(
    client: Client, log: LogReader, monkeypatch: pytest.MonkeyPatch
):
    def fail(*_: object) -> NoReturn:
        raise RuntimeError("broken")

    monkeypatch.setattr(KnnRanker, "predict_with_novelty", fail)
    response = client.post("/v1/rank", UP, x_request_id="mine-2")
    assert (response.json["ids"], response.json["fallback"]) == (UP["ids"], "model-error")
    assert "log" in response.json["detail"]
    (line,) = log.wait_for("error")
    assert (line["where"], line["request_id"]) == ("rank", "mine-2")
    assert line["traceback"].endswith("RuntimeError: broken")


def test_client_that_disconnects_is_not_an_error(client: Client, log: LogReader):
    messages = [{"type": "http.request", "body": b'{"ids":', "more_body": True}, {"type": "http.disconnect"}]
    response = client.runner.run(client.request_messages("POST", "/v1/rank", messages))
    assert (response.status, response.code) == (400, "disconnected")
    assert [line["status"] for line in log.wait_for("request")] == [400]
    assert '"event":"error"' not in log.text


def test_ranking_thread_survives_a_failed_delivery(models: Path, up: CandidateSet):
    observer = RecordingObserver()

    def fail(_: Ranking) -> None:
        raise RuntimeError("the event loop is closed")

    with Service({"knn": models / "knn"}, settings=PATIENT, observer=observer) as service:
        service.submit(up, None, fail)
        wait_until(lambda: observer.errors == ["rank: the event loop is closed"])
        assert service.rank(up).fallback is not Fallback.LATE


def test_what_libraries_print_is_logged_as_json(capfd: pytest.CaptureFixture[str]):
    lightgbm = import_extra("lightgbm", "lightgbm")
    printed = lightgbm.basic._LOGGER
    stream = io.StringIO()
    log = JsonLog(stream).start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(False)  # as left on by a test before this one that built an app
            log_libraries()
            # LightGBM stays as quiet as a test before this one has set it.
            params = {"objective": "regression", "nonsense": 1, "verbosity": 1}
            lightgbm.train(params, lightgbm.Dataset(np.eye(30), np.arange(30)), 1)
            warnings.warn("a warning", UserWarning, stacklevel=1)
            logging.captureWarnings(False)
    finally:
        log.close()
        lightgbm.register_logger(printed)
    lines = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert any("[LightGBM] [Warning] Unknown parameter: nonsense" in line for line in lines)
    assert any("a warning" in line for line in lines)
    assert capfd.readouterr() == ("", "")
