"""Engines on running servers, each with a temporary index."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from kinrank.engines import FeatureSet, connect
from kinrank.engines.lucene import LuceneEngine
from kinrank.errors import EngineUnreachableError
from tests.engines.engine_sample import FEATURES
from tests.engines.servers import ADDRESSES, VECTORS

OpenEngine = Callable[..., LuceneEngine]


@pytest.fixture(params=list(ADDRESSES))
def engine_name(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def open_engine() -> Iterator[OpenEngine]:
    """A function that opens a new index, which is deleted after the test."""
    with ExitStack() as stack:

        def open_index(
            name: str, features: str | None = FEATURES, index: str | None = None, **options: Any
        ) -> LuceneEngine:
            address = (
                f"{os.environ.get(f'KINRANK_{name.upper()}', ADDRESSES[name])}/{index or f'test-{uuid.uuid4().hex}'}"
            )
            engine = connect(
                address, None if features is None else FeatureSet.parse(features), **{"timeout": 60.0, **options}
            )
            assert isinstance(engine, LuceneEngine)
            try:
                engine.delete_index()
            except EngineUnreachableError as error:
                pytest.fail(f"{error}: scripts/engine start {name}, or run -m 'not engine'")
            stack.callback(engine.close)
            stack.callback(engine.delete_index)
            return engine

        yield open_index


def index_body(name: str, *, shards: int = 1, replicas: int = 0, dims: int = 3) -> dict[str, Any]:
    """Return the create index request for the sample documents."""
    settings: dict[str, Any] = {"number_of_shards": shards, "number_of_replicas": replicas}
    if name == "opensearch":
        settings["knn"] = True
    properties = {
        "title": {"type": "text"},
        "body": {"type": "text"},
        "votes": {"type": "integer"},
        "price": {"type": "float"},
        "sold": {"type": "boolean"},
        "embedding": VECTORS[name](dims),
    }
    return {"settings": {"index": settings}, "mappings": {"properties": properties}}
