"""A database for tests by the name of each registered store of judgments."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from kinrank.serve._judgments import open_store
from tests.serve.servers import free_port

ROOT = Path(__file__).parents[2]


class Database(NamedTuple):
    """How to make an empty database, to copy its content and to restore it, and the marks of tests that need it."""

    empty: Callable[[Path], AbstractContextManager[str]]
    dump: Callable[[str], None]
    restore: Callable[[str], None]
    marks: tuple[pytest.MarkDecorator, ...] = ()


def sqlite_address(folder: Path) -> str:
    return f"sqlite:///{folder}/judgments.db"


def stored_queries(address: str, model: str) -> list[str]:
    """Return the queries with stored judgments."""
    store = open_store(address)
    changes = store.read(model, limit=1_000_000)
    store.close()
    return [query for query, rows in changes.queries.items() if any(row.record for row in rows)]


@contextmanager
def empty_file(folder: Path) -> Iterator[str]:
    yield sqlite_address(folder)


def run_engine(command: str, port: int) -> str:
    """Run scripts/engine for PostgreSQL and return what it prints."""
    script = [ROOT / "scripts" / "engine", command, "postgresql", f"--port={port}"]
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(script, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout.strip()


@cache
def port() -> int:
    """The port of PostgreSQL in this process of the tests."""
    return free_port()


@cache
def server() -> str:
    """Start PostgreSQL once and return its address; `stop_server` ends it."""
    return run_engine("start", port())


def stop_server() -> None:
    if server.cache_info().currsize:
        run_engine("stop", port())
        server.cache_clear()


def copy_file(source: str, target: str) -> None:
    """Copy a SQLite database into another one, which others may have open."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def dump_file(address: str) -> None:
    path = address.removeprefix("sqlite:///")
    copy_file(path, f"{path}.dump")


def restore_file(address: str) -> None:
    path = address.removeprefix("sqlite:///")
    copy_file(f"{path}.dump", path)


def copy_database(source: str, target: str) -> None:
    from benchmarks import fleet  # which needs the extra

    fleet.copy_database(server(), source, target)


@contextmanager
def empty_database(_: Path) -> Iterator[str]:
    import psycopg

    with psycopg.connect(server(), autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS judgments WITH (FORCE)")
        connection.execute("CREATE DATABASE judgments")
    yield server().rpartition("/")[0] + "/judgments"


DATABASES = {
    "sqlite": Database(empty_file, dump_file, restore_file),
    "postgresql": Database(
        empty_database,
        lambda _: copy_database("judgments", "dump"),
        lambda _: copy_database("dump", "judgments"),
        (pytest.mark.engine,),
    ),
}
