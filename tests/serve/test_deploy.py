"""The lock file and the container."""

from __future__ import annotations

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
