"""A canary over HTTP."""

from __future__ import annotations

from pathlib import Path

from kinrank.serve import Service, Settings
from kinrank.serve._http.app import create_app
from kinrank.serve._http.metrics import Metrics
from kinrank.store import Arm, VersionStore, fingerprint
from tests.processes import wait_until
from tests.serve.asgi import Client

UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}


def test_sessions_stick_to_a_version(tmp_path: Path, models: Path):
    store, metrics = VersionStore(tmp_path / "store"), Metrics()
    current, other = store.publish(models / "knn").name, store.publish(models / "single").name
    store.set_rollout({"current": Arm(current), "canary": Arm(other, 0.5), "shadow": Arm(other)})
    service = Service(
        {"default": tmp_path / "store"}, settings=Settings(deadline=60.0, poll_interval=0.05), observer=metrics
    )
    fitted, canary = fingerprint(models / "knn"), fingerprint(models / "single")
    client = Client(create_app(service, metrics=metrics))

    def status() -> dict:
        return client.get("/v1/model").json["models"]["default"]

    with service, client.runner:
        wait_until(lambda: status()["canary"] == canary)
        versions = {}
        for session in map(str, range(20)):
            answers = [client.post("/v1/rank", UP, x_kinrank_session=session).json for _ in range(3)]
            versions[session] = {answer["version"] for answer in answers}
        assert all(len(seen) == 1 for seen in versions.values())
        assert set.union(*versions.values()) == {fitted, canary}
        page = client.get("/metrics").body.decode()
        assert f'kinrank_results_total{{model="default",result="ranked",version="{canary}"}}' in page
        assert f'kinrank_rank_seconds_count{{model="default",version="{fitted}"}}' in page
