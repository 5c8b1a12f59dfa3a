"""The password of a database is in no message, whatever is done with it and whatever fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kinrank.cli.app import app
from kinrank.errors import KinrankError
from kinrank.serve._database import open_database
from tests.serve.asgi import Client
from tests.serve.databases import DATABASES

SECRET = "pa55"
COMMANDS = [
    ["admin", "forget", "ADDRESS", "--client", "c1"],
    ["admin", "judgments", "ADDRESS", "--model", "m", "--withdraw-query", "q1"],
]


def said_by(command: list[str], address: str) -> str:
    done = CliRunner().invoke(app, [address if word == "ADDRESS" else word for word in command])
    return done.output


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with DATABASES["postgresql"].empty(tmp_path) as address:
        yield address.replace("postgres@", f"postgres:{SECRET}@", 1)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("form", ["user", "parameter"])
@DATABASES["postgresql"].marks[0]
def test_commands_that_succeed(command: list[str], form: str, address: str):
    if form == "parameter":
        address = address.replace(f":{SECRET}@", "@") + f"?password={SECRET}"
    said = said_by(command, address)
    assert "error" not in said
    assert SECRET not in said
    assert "postgresql://...@127.0.0.1:" in said


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://me:{SECRET}@127.0.0.1:1/kinrank",
        f"postgresql://127.0.0.1:1/kinrank?user=me&password={SECRET}",
        f"postgres://me:{SECRET}@db/kinrank",
        f"mysql://me:{SECRET}@db/kinrank",
        f"sqlite://me:{SECRET}@db",
        f"postgresql://me:{SECRET}%zz@127.0.0.1:1/kinrank",
        f"postgresql://me:{SECRET}/x@127.0.0.1:1/kinrank",
        f"postgresql://me:x#{SECRET}@127.0.0.1:1/kinrank",
        f"postgresql://me:{SECRET} x@127.0.0.1:1/kinrank",
        f"postgresql://me:{SECRET}@127.0.0.1:port/kinrank",
    ],
)
def test_commands_that_fail(address: str):
    for command in COMMANDS:
        said = said_by(command, address)
        assert "error" in said
        assert SECRET not in said
    with pytest.raises(KinrankError, match=r"judgment|password|SQLite") as failed, open_database(address).reading():
        pass
    assert SECRET not in str(failed.value)


def test_a_click_log_that_is_an_address():
    said = said_by(["clicks", "ADDRESS", "--out", "x.csv"], f"https://me:{SECRET}@engine:9200/ubi")
    assert "no such file" in said
    assert SECRET not in said


def test_a_service_whose_database_is_away(
    make_client: Callable[..., Client], secrets: dict[str, str], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO)
    address = f"postgresql://me:{SECRET}@127.0.0.1:1/kinrank"
    client = make_client(keys=True, key=secrets["admin"], judgments=address)
    answers = [client.get(path).body for path in ("/v1/model", "/metrics", "/readyz")]
    answers.append(client.post("/v1/judgments/withdraw", {"qid": 1}).body)
    logged = [logging.Formatter().format(record) + str(vars(record).get("fields")) for record in caplog.records]
    assert any("learn-failed" in line for line in logged)
    assert SECRET not in "".join(logged) + b"".join(answers).decode()
