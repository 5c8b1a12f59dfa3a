"""Threads of the service that nothing may end."""

from __future__ import annotations

import io
import json
import threading
import time

from kinrank.serve import Candidates, Ranking, Service
from kinrank.serve.http.logs import JsonLog
from kinrank.serve.messages import Fallback
from tests.serve.asgi import Client  # noqa: F401 - what these tests need is not in the core
from tests.serve.told import Told, eventually


class FullDisk(io.StringIO):
    """A stream that takes nothing for a while."""

    full = True

    def write(self, text: str) -> int:
        if self.full:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_log_goes_on_when_the_disk_has_room_again():
    stream = FullDisk()
    log = JsonLog(stream)
    for number in range(3):
        log.write("lost", number=number)
        time.sleep(0.1)
    eventually(lambda: log._dropped == 3)
    stream.full = False
    log.write("kept", number=4)
    eventually(lambda: "dropped" in stream.getvalue())
    log.write("unwritable", what=object())
    eventually(lambda: log._dropped == 1)
    log.write("last")
    log.close()
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(event["event"], event.get("lines")) for event in events] == [
        ("kept", None),
        ("dropped", 3),
        ("last", None),
        ("dropped", 1),
    ]


def test_a_ranking_that_cannot_be_delivered_does_not_end_the_thread(service: Service, up: Candidates):
    told = service.observer = Told()
    there = threading.Event()

    def gone(_: Ranking) -> None:
        there.set()
        raise RuntimeError("the event loop is closed")

    service.submit(up, None, gone)
    assert there.wait(10)
    eventually(lambda: told.errors == ["rank: the event loop is closed"])
    assert service.rank(up).fallback is not Fallback.LATE
