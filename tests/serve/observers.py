"""Helpers that record what a service reports and delivers."""

from __future__ import annotations

import threading

from kinrank.serve import Observer, Ranking
from tests.processes import PATIENCE


class RecordingObserver(Observer):
    def __init__(self) -> None:
        self.models: list[tuple[str, str]] = []
        self.errors: list[str] = []

    def model(self, model: str, version: str | None, event: str, detail: str = "") -> None:
        self.models.append((model, event))

    def error(self, where: str, error: BaseException) -> None:
        self.errors.append(f"{where}: {error}")


class Deliveries:
    """Collects delivered rankings."""

    def __init__(self) -> None:
        self._rankings: list[Ranking] = []
        self._count = threading.Semaphore(0)

    def __call__(self, ranking: Ranking) -> None:
        self._rankings.append(ranking)
        self._count.release()

    def wait(self, count: int) -> list[Ranking]:
        for _ in range(count):
            assert self._count.acquire(timeout=PATIENCE)
        return self._rankings
