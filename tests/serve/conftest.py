"""A small model, a service over it, and ways to ask it."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.datasets import make_two_camps
from kinrank.serve import Candidates, Service, Settings
from kinrank.serve.keys import KeyRing, Role, add_key

if TYPE_CHECKING:
    from tests.serve.asgi import Client
    from tests.serve.engine import ShelfEngine

PATIENT = Settings(deadline=5.0, watch=0.05)  # a busy machine must not decide what a test of answers sees


@pytest.fixture(scope="session")
def camps() -> QuerySet:
    return make_two_camps(n_queries=60, n_docs=10, seed=0)


@pytest.fixture(scope="session")
def _models(camps: QuerySet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    KnnRanker(n_neighbors=5).fit(camps).save(folder / "knn", examples=camps[:5])
    SingleRanker("rankrls").fit(camps).save(folder / "single", examples=camps[:5])
    return folder


@pytest.fixture
def models(_models: Path, tmp_path: Path) -> Path:
    """A folder with the models knn/ and single/, to be changed at will."""
    folder = tmp_path / "models"
    shutil.copytree(_models, folder)
    return folder


@pytest.fixture
def service(models: Path, tmp_path: Path) -> Iterator[Service]:
    with Service(
        {"knn": models / "knn", "single": models / "single"}, settings=PATIENT, judgments=tmp_path / "judgments"
    ) as service:
        yield service


@pytest.fixture
def up() -> Candidates:
    """Three candidates of a query that wants high values first."""
    return Candidates(["a", "b", "c"], np.array([[0.2, 1], [0.9, 1], [0.5, 1]], dtype=np.float32))


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, str]:
    """A key of each role; the file is tmp_path / "keys"."""
    return {role.value: add_key(tmp_path / "keys", role.value, role) for role in Role}


@pytest.fixture
def log() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def make_client(models: Path, tmp_path: Path, log: io.StringIO) -> Iterator[Callable[..., Client]]:
    """Applications over the two models, called in this process."""
    from kinrank.serve.http.app import create_app
    from kinrank.serve.http.logs import JsonLog
    from kinrank.serve.http.metrics import Metrics
    from kinrank.serve.search import Searcher
    from tests.serve.asgi import Client

    closing: list[Callable[[], None]] = []

    def make(
        *, settings: Settings = PATIENT, keys: bool = False, engine: ShelfEngine | None = None, key: str | None = None
    ) -> Client:
        writer = JsonLog(log)
        metrics = Metrics(writer)
        service = Service(
            {"knn": models / "knn", "single": models / "single"},
            settings=settings,
            observer=metrics,
            judgments=tmp_path / "judgments",
        )
        service.start()
        ring = KeyRing(tmp_path / "keys") if keys else None
        searcher = None if engine is None else Searcher(service, engine, titles={"d1": "One"}, texts={"0": "zero"})
        client = Client(create_app(service, metrics=metrics, log=writer, keys=ring, searcher=searcher), key)
        closing.extend([client.runner.close, service.close, writer.close])
        return client

    yield make
    for close in closing:
        close()


@pytest.fixture
def client(make_client: Callable[..., Client]) -> Client:
    return make_client()
