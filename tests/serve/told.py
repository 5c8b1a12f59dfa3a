"""What tests of a service wait for and listen to."""

from __future__ import annotations

import time
from collections.abc import Callable

from kinrank.serve.observer import Observer


def eventually(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.02)


class Told(Observer):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.models: list[tuple[str, str]] = []
        self.errors: list[str] = []

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        self.models.append((model, event))

    def error(self, where: str, error: BaseException) -> None:
        self.errors.append(f"{where}: {error}")
