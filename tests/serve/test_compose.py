"""deploy/compose.yaml: what its parts tell each other, as far as that can be checked without Docker."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from kinrank.cli.app import app
from kinrank.serve._http.app import EXIT_SECONDS
from kinrank.serve._http.run import Options
from tests.conftest import missing

DEPLOY = Path(__file__).parents[2] / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES = COMPOSE["services"]


def run(*command: str | Path, **environment: str) -> None:
    if shutil.which(command[0]) is None:
        missing(f"{command[0]} is not installed: scripts/tools does that")
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stdout + done.stderr


def test_replicas_take_their_arguments(monkeypatch: pytest.MonkeyPatch):
    replica = SERVICES["kinrank"]
    given: list[Options] = []
    monkeypatch.setattr("kinrank.serve._http.run.run", given.append)
    for name, value in replica["environment"].items():
        monkeypatch.setenv(name, value)
    command = [re.sub(r"\$\{\w+:\?[^}]*\}", "movies", word) for word in replica["command"]]
    result = CliRunner().invoke(app, ["serve", "--host=0.0.0.0", "--port=8080", *command])
    assert result.exit_code == 0, result.output
    (options,) = given
    assert options.engine == "elasticsearch+http://elasticsearch:9200/movies"
    assert options.judgments == "postgresql://kinrank:${POSTGRES_PASSWORD}@postgres/kinrank"
    assert options.keys == "/run/secrets/keys"
    assert options.settings.log_shown == 10  # or clicks on searches are on unknown lists
    assert int(replica["stop_grace_period"].removesuffix("s")) > options.settings.drain_seconds + EXIT_SECONDS
    assert replica["read_only"]
    assert replica["cap_drop"] == ["ALL"]


def test_everything_that_is_named_exists():
    for service in SERVICES.values():
        assert {each["source"] for each in service.get("configs", ())} <= set(COMPOSE["configs"])
        assert set(service.get("secrets", ())) <= set(COMPOSE["secrets"])
        assert set(service.get("depends_on", ())) <= set(SERVICES)
        volumes = {each.partition(":")[0] for each in service.get("volumes", ()) if not each.startswith("${")}
        assert volumes <= set(COMPOSE["volumes"])
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    files = [each["file"] for each in COMPOSE["configs"].values() if "file" in each]
    assert [name for name in files if not (DEPLOY / name).exists()] == []


def test_prometheus_scrapes_every_replica_with_our_alerts(tmp_path: Path):
    config = COMPOSE["configs"]["prometheus"]["content"]
    (tmp_path / "prometheus.yml").write_text(config)
    run("promtool", "check", "config", "--syntax-only", tmp_path / "prometheus.yml")
    (job,) = yaml.safe_load(config)["scrape_configs"]
    assert job["job_name"] == "kinrank"  # as the alerts name it
    assert job["dns_sd_configs"][0]["names"] == ["kinrank"]
    assert yaml.safe_load(config)["rule_files"] == [
        each["target"] for each in SERVICES["prometheus"]["configs"] if each["source"] == "alerts"
    ]


def test_proxy_knows_every_replica():
    proxy = SERVICES["haproxy"]["environment"]
    assert proxy["KINRANK_REPLICAS"] == str(SERVICES["kinrank"]["deploy"]["replicas"])
    run("haproxy", "-c", "-f", DEPLOY / "haproxy.cfg", **proxy)
