"""Where a memory is kept in tests: each store of the ledger by its name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.serve import databases


class Place(NamedTuple):
    """Where a ledger is, how to copy its database away, and how to bring the copy back."""

    address: str
    folder: Path
    database: databases.Database
    name: str

    def dump(self) -> None:
        self.database.dump(self.name)

    def restore(self) -> None:
        self.database.restore(self.name)


@pytest.fixture(params=[pytest.param(name, marks=each.marks) for name, each in databases.DATABASES.items()])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty database, in each store in turn."""
    database = databases.DATABASES[request.param]
    with database.empty(tmp_path) as name:
        yield Place(name.removeprefix("sqlite:///"), tmp_path / "kept", database, name)


@pytest.fixture(scope="session", autouse=True)
def _stop_database() -> Iterator[None]:
    """Stop the PostgreSQL that a test has started."""
    yield
    databases.stop_server()
