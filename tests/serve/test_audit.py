"""The audit log: who changed what is ranked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kinrank.errors import NotStoredError
from kinrank.serve._audit import AuditLog
from tests.processes import wait_until
from tests.serve.asgi import Client
from tests.serve.databases import DATABASES
from tests.serve.test_cli import run

JUDGED = {"ids": ["a", "b"], "features": [[0.2, 1], [0.9, 1]], "grades": [0, 1]}


@pytest.fixture(params=[pytest.param(name, marks=database.marks) for name, database in DATABASES.items()])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with DATABASES[request.param].empty(tmp_path) as address:
        yield address


def test_changes_are_recorded_with_the_name_of_the_key(
    address: str, make_client: Callable[..., Client], secrets: dict[str, str]
):
    client = make_client(keys=True, judgments=address, key=secrets["admin"])

    def entries(parameters: str = "") -> list[dict[str, Any]]:
        return client.get(f"/v1/audit{parameters}").json["entries"]

    wait_until(lambda: {each["subject"] for each in entries()} == {"knn", "single"}, 5.0)
    assert {each["action"] for each in entries()} == {"model"}
    for _ in range(2):  # the same again changes nothing
        client.post("/v1/judgments", {"queries": [{"qid": "900", **JUDGED}], "source": "panel"})
    client.post("/v1/judgments/withdraw", {"qid": "900"})
    rule = {"query": "up", "action": "hide", "document": "a"}
    added = client.post("/v1/rules", rule, authorization=f"Bearer {secrets['editor']}").json["rule"]
    client.send("DELETE", f"/v1/rules?rule={added}", b"")
    client.post("/v1/model/reload", {"model": "single"})
    found = entries("?limit=5")
    assert [(each["actor"], each["action"], each["subject"]) for each in found] == [
        ("admin", "reloaded", "single"),
        ("admin", "removed rule", "1"),
        ("editor", "added rule", "1"),
        ("admin", "withdrew", "knn"),
        ("admin", "judged", "knn"),
    ]
    assert found[-1]["detail"] == "revision 1: '900' by 'panel'"
    assert [each["action"] for each in entries(f"?limit=1&before={found[3]['time']}")] == ["judged"]
    for wrong in ("limit=0", "limit=1001", "before=yesterday"):
        assert client.get(f"/v1/audit?{wrong}").code == "invalid"
    assert "added rule" in run("admin", "audit", address).stdout


def test_entries_cannot_be_changed(address: str):
    log = AuditLog(address)
    log.record("judged", "knn", "")
    for statement in ("UPDATE kinrank_audit SET actor = 'nobody'", "DELETE FROM kinrank_audit"):
        with pytest.raises(NotStoredError, match="only added to"), log.database.writing() as execute:
            execute(statement, ())
    assert len(log.read()) == 1
    log.close()


def test_replicas_record_a_change_of_keys_once(address: str):
    logs = [AuditLog(address), AuditLog(address)]
    for keys in ({"web": "query", "ops": "admin"}, {"web": "query"}, {"web": "query", "ops": "query"}):
        for log in logs:
            log.watched["key"] = lambda keys=keys: keys
            log.check()
    found = [(entry.subject, entry.detail) for entry in reversed(logs[0].read())]
    assert found == [("web", "query"), ("ops", "admin"), ("ops", "none"), ("ops", "query")]
    for log in logs:
        log.close()
