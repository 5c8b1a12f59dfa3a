"""The lock file, the container, the alerts and the dashboard."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

from tests.conftest import missing

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
IN_THE_IMAGE = ("serve", "engines", "lightgbm", "postgres", "otel")


def promtool(*args: str | Path) -> None:
    """Check rules as Prometheus reads them."""
    program = shutil.which("promtool")
    if program is None:
        missing("promtool is not installed: apt-get install prometheus")
    done = subprocess.run([program, *args], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def dashboard_queries() -> list[str]:
    dashboard = json.loads((DEPLOY / "dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def normalized(requirement: str) -> str:
    return re.split(r"[\[<>=~!; ]", requirement)[0].lower().replace("_", "-")


def pinned(lock: str) -> set[str]:
    """Return the names in a lock file, all of which must have a version and a hash."""
    entries = re.split(r"\n(?=\w)", (DEPLOY / lock).read_text().strip())
    assert all(re.match(r"[\w.-]+==\S+ ", entry) and "--hash=sha256:" in entry for entry in entries)
    return {normalized(entry) for entry in entries}


def test_lock_pins_every_dependency_by_hash():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = {
        normalized(line)
        for line in [*project["dependencies"], *(line for extra in IN_THE_IMAGE for line in extras[extra])]
    }
    assert required <= pinned("requirements.lock")


def test_lock_of_build_tools_pins_what_builds_the_package():
    system = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]
    assert {normalized(line) for line in system["requires"]} <= pinned("build.lock")


def test_container_is_hardened():
    docker = (DEPLOY / "Dockerfile").read_text()
    installs = [line for line in docker.splitlines() if re.search(r"pip (?:install|wheel)", line)]
    assert len(installs) == 4
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)
    assert set(re.findall(r"^FROM (\S+)", docker, re.M)) == {"${BASE}"}  # releases pass it with its digest
    assert "USER kinrank" in docker
    assert "HEALTHCHECK" in docker
    assert "--build-arg BASE=" in docker
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", docker, re.M)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for line in copied for name in line.split()} <= set(ignored)


def test_alerts_and_dashboard_use_metrics_that_exist_and_every_alert_has_a_runbook():
    from kinrank.serve._http.metrics import Metrics

    families = {family.name for family in Metrics().registry.collect()}
    series = {f"{name}{end}" for name in families for end in ("", "_total", "_bucket", "_sum", "_count")}
    alerts = (ROOT / "deploy" / "alerts.yaml").read_text()
    used = set(re.findall(r"\b(?:kinrank|process|python)_\w+", " ".join([alerts, *dashboard_queries()])))
    assert used - series == set()
    runbook = (ROOT / "docs" / "runbook.md").read_text()
    names = re.findall(r"alert: (\w+)", alerts)
    assert names
    assert [name for name in names if f"| `{name}` |" not in runbook] == []
    on_call = (ROOT / "docs" / "watch.md").read_text()
    assert set(re.findall(r"`(Kinrank\w+)`", on_call)) == set(names)
    assert len(on_call.splitlines()) <= 45, "one screen"


def test_alerts_fire_when_they_should():
    tested = set(re.findall(r"alertname: (\w+)", (DEPLOY / "alerts_test.yaml").read_text()))
    assert tested == set(re.findall(r"alert: (\w+)", (DEPLOY / "alerts.yaml").read_text()))
    promtool("check", "rules", DEPLOY / "alerts.yaml")
    promtool("test", "rules", DEPLOY / "alerts_test.yaml")


def test_queries_of_the_dashboard_are_valid(tmp_path: Path):
    # Recording rules are the queries that promtool checks; JSON is YAML.
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(dashboard_queries())]
    (tmp_path / "rules.yaml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yaml")


def test_release_pins_the_base_image_and_has_a_bill_of_materials():
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "build-args: BASE=python:3.11-slim@${{ steps.base.outputs.digest }}" in release
    assert "nox --session sbom" in release
    assert "def sbom(" in (ROOT / "noxfile.py").read_text()
