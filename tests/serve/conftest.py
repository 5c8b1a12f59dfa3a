"""Small models, a service over them, and clients of it."""

from __future__ import annotations

import io
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.datasets import make_two_camps
from kinrank.serve import CandidateSet, Service, Settings
from kinrank.serve._keys import KeyRing, Role, add_key
from tests.processes import wait_until
from tests.serve.databases import sqlite_address, stop_server

if TYPE_CHECKING:
    from tests.serve.asgi import Client
    from tests.serve.engine import InMemoryEngine

PATIENT = Settings(deadline=60.0, watch_interval=0.05)  # results must not depend on the load of the machine


@pytest.fixture(scope="session")
def camps() -> QuerySet:
    return make_two_camps(n_queries=60, n_docs=10, seed=0)


@pytest.fixture(scope="session")
def _models(camps: QuerySet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    KnnRanker(n_neighbors=5, missing="error").fit(camps).save(folder / "knn", examples=camps[:5])
    SingleRanker("rankrls").fit(camps).save(folder / "single", examples=camps[:5])
    return folder


@pytest.fixture
def models(_models: Path, tmp_path: Path) -> Path:
    """A folder with the models knn/ and single/; tests may change it."""
    folder = tmp_path / "models"
    shutil.copytree(_models, folder)
    return folder


@pytest.fixture
def service(models: Path, tmp_path: Path) -> Iterator[Service]:
    with Service(
        {"knn": models / "knn", "single": models / "single"}, settings=PATIENT, judgments=sqlite_address(tmp_path)
    ) as service:
        yield service


@pytest.fixture
def up() -> CandidateSet:
    """Three candidates of a query that prefers high values."""
    return CandidateSet(["a", "b", "c"], np.array([[0.2, 1], [0.9, 1], [0.5, 1]], dtype=np.float32))


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, str]:
    """One key per role; the file is tmp_path / "keys"."""
    return {role.value: add_key(tmp_path / "keys", role.value, role) for role in Role}


class LogReader:
    """The log of the clients."""

    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def text(self) -> str:
        return self.stream.getvalue()

    def wait_for(self, event: str, count: int = 1) -> list[dict[str, Any]]:
        """Return all lines of an event as soon as there are `count`."""

        def lines() -> list[dict[str, Any]]:
            complete = self.text[: self.text.rfind("\n") + 1]
            return [line for line in map(json.loads, complete.splitlines()) if line["event"] == event]

        wait_until(lambda: len(lines()) >= count)
        return lines()


@pytest.fixture
def log() -> Iterator[LogReader]:
    from kinrank.serve._http.logs import JsonLog

    reader = LogReader()
    writer = JsonLog(reader.stream, logging.getLogger("kinrank")).start()
    yield reader
    writer.close()


@pytest.fixture
def make_client(models: Path, tmp_path: Path) -> Iterator[Callable[..., Client]]:
    """Applications over the two models, called in this process."""
    from kinrank.serve._http.app import create_app
    from kinrank.serve._http.metrics import Metrics
    from kinrank.serve._search import Searcher
    from tests.serve.asgi import Client

    closing: list[Callable[[], None]] = []

    def make(
        *,
        settings: Settings = PATIENT,
        keys: bool = False,
        engine: InMemoryEngine | None = None,
        key: str | None = None,
        strict: bool = True,
        judgments: str | None = None,
    ) -> Client:
        metrics = Metrics()
        service = Service(
            {"knn": models / "knn", "single": models / "single"},
            settings=settings,
            observer=metrics,
            judgments=judgments or sqlite_address(tmp_path),
        )
        service.start(strict=strict)
        ring = KeyRing(tmp_path / "keys") if keys else None
        searcher = None if engine is None else Searcher(service, engine)
        client = Client(create_app(service, metrics=metrics, keys=ring, searcher=searcher), key)
        closing.extend([client.runner.close, service.close])
        return client

    yield make
    for close in closing:
        close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    return make_client()


@pytest.fixture(scope="session", autouse=True)
def _stop_database() -> Iterator[None]:
    """Stop the PostgreSQL that a test has started."""
    yield
    stop_server()
