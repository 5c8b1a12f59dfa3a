"""Servers killed while they store judgments: acknowledged judgments are kept."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kinrank.serve._keys import Role, add_key
from tests.conftest import THOROUGH
from tests.processes import PATIENCE, wait_until
from tests.serve.asgi import Client  # noqa: F401 - these tests need the extra
from tests.serve.databases import sqlite_address, stored_queries

ROUNDS = 40 if THOROUGH else 10
STEP = 0.03 / ROUNDS  # seconds: the kills come at all stages of a request
BODY = {"ids": ["x", "y", "z"], "features": [[0.1, 1], [0.9, 1], [0.4, 1]], "grades": [0, 2, 1]}


@pytest.mark.slow
@pytest.mark.alone
def test_acknowledged_judgments_survive_sigkill(models: Path, tmp_path: Path):
    key = add_key(tmp_path / "keys", "ops", Role.ADMIN)
    address = sqlite_address(tmp_path)
    command = [sys.executable, "-m", "tests.serve.forking_server", models / "knn", tmp_path / "keys", address]
    root = Path(__file__).parents[2]
    acknowledged: list[str] = []
    learned = 0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        for number in range(ROUNDS):
            parent.stdin.write("\n")
            parent.stdin.flush()
            port, child = map(int, parent.stdout.readline().split())
            try:
                learned = judgments_learned(port, key)
                assert learned >= len(acknowledged)
                acknowledged += judge_until_killed(port, key, number, child)
            finally:  # the parent waits for the child
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
        parent.stdin.close()
    assert len(acknowledged) >= ROUNDS
    assert set(acknowledged) <= set(stored_queries(address, "default"))


def judge_until_killed(port: int, key: str, number: int, child: int) -> list[str]:
    """Send judgments until the server is killed, a little later in every round to hit every stage of a request."""
    kept: list[str] = []
    killer = threading.Timer(STEP * number, os.kill, (child, signal.SIGKILL))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        for turn in range(1000):
            qid = str(10_000 + 1000 * number + turn)
            connection.request(
                "POST",
                "/v1/judgments",
                json.dumps({"queries": [{"qid": qid, **BODY}]}),
                {"Authorization": f"Bearer {key}"},
            )
            response = connection.getresponse()
            response.read()
            assert response.status == 200
            kept.append(qid)
            if turn == 0:
                killer.start()
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    killer.join()
    return kept


def judgments_learned(port: int, key: str) -> int:
    """Return the number of learned judgments as soon as the server responds."""
    learned: list[int] = []

    def ask() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("GET", "/v1/model", headers={"Authorization": f"Bearer {key}"})
            loaded = json.loads(connection.getresponse().read())["models"]["default"]["loaded"]
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        if loaded is None:  # still starting
            return False
        learned.append(loaded["judgments_learned"])
        return True

    wait_until(ask)
    return learned[0]
