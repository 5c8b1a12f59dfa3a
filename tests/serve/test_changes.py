"""What changed what is ranked is one line of the log, with the name of the key or of the user."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from kinrank.serve._http.run import log_key
from kinrank.serve._keys import KeyRing, Role, add_key
from tests.serve.asgi import Client
from tests.serve.conftest import LogReader

UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}


def test_changes_by_requests_are_logged_with_the_name_of_the_key(
    make_client: Callable[..., Client], secrets: dict[str, str], log: LogReader
):
    client = make_client(keys=True, key=secrets["admin"])
    client.post("/v1/judgments", {"queries": [{"qid": "900", **UP, "grades": [0, 2, 1]}], "source": "panel"})
    client.post("/v1/judgments/withdraw", {"source": "panel"})
    version = client.post("/v1/model/reload", b"", x_kinrank_model="single").json["version"]
    judged, withdrawn, reloaded = log.wait_for("request", 3)
    who = {"key": "admin", "status": 200}
    assert judged.items() >= {**who, "path": "/v1/judgments", "model": "knn", "judged": 1, "source": "panel"}.items()
    assert withdrawn.items() >= {**who, "path": "/v1/judgments/withdraw", "model": "knn", "withdrawn": 1}.items()
    assert [line["judgment_revision"] for line in (judged, withdrawn)] == [1, 2]
    assert reloaded.items() >= {**who, "path": "/v1/model/reload", "model": "single", "version": version}.items()
    assert [line["what"] for line in log.wait_for("model") if line["model"] == "single"][-1] == "loaded"


def test_changes_of_the_key_file_are_logged(tmp_path: Path, log: LogReader):
    add_key(tmp_path / "keys", "web", Role.QUERY)
    ring = KeyRing(tmp_path / "keys", on_change=log_key)
    add_key(tmp_path / "keys", "ops", Role.ADMIN)
    ring.refresh()
    [line] = log.wait_for("key")
    assert line.items() >= {"key": "ops", "role": "admin", "what": "added"}.items()
