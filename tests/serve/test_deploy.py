"""The lock file, the container, the alerts and the dashboard."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def normalized(requirement: str) -> str:
    return re.split(r"[\[<>=~!; ]", requirement)[0].lower().replace("_", "-")


def test_lock_pins_every_dependency_by_hash():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = {
        normalized(line)
        for line in [*project["dependencies"], *extras["serve"], *extras["engines"], *extras["lightgbm"]]
    }
    lock = (ROOT / "deploy" / "requirements.lock").read_text()
    entries = re.split(r"\n(?=\w)", lock.strip())
    pinned = {normalized(entry): entry for entry in entries}
    assert required <= pinned.keys()
    assert all(re.match(r"[\w.-]+==\S+ ", entry) and "--hash=sha256:" in entry for entry in entries)


def test_container_is_hardened_and_has_probes():
    docker = (ROOT / "deploy" / "Dockerfile").read_text()
    cluster = (ROOT / "deploy" / "kubernetes.yaml").read_text()
    assert "--require-hashes" in docker
    assert "USER kinrank" in docker
    for probe in ("/healthz", "/readyz"):
        assert probe in cluster
    assert cluster.count("timeoutSeconds") == 3
    assert "HEALTHCHECK" in docker
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", docker, re.M)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for line in copied for name in line.split()} <= set(ignored)


def test_alerts_and_dashboard_use_metrics_that_exist_and_every_alert_has_a_runbook():
    from kinrank.serve.http.metrics import Metrics

    families = {family.name for family in Metrics().registry.collect()}
    series = {f"{name}{end}" for name in families for end in ("", "_total", "_bucket", "_sum", "_count")}
    alerts = (ROOT / "deploy" / "alerts.yaml").read_text()
    dashboard = json.loads((ROOT / "deploy" / "dashboard.json").read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    used = set(re.findall(r"\b(?:kinrank|process)_\w+", " ".join([alerts, *queries])))
    assert used - series == set()
    runbook = (ROOT / "docs" / "operations.md").read_text()
    names = re.findall(r"alert: (\w+)", alerts)
    assert names
    assert [name for name in names if f"| `{name}` |" not in runbook] == []
