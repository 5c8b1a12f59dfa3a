from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from kinrank.cli import app
from kinrank.cli.train import DEFAULT_RANKER
from kinrank.rankers import RANKERS
from kinrank.registry.notation import parse_settings

EXAMPLES_DIR = Path(__file__).parents[2] / "examples"
EXAMPLES = sorted(EXAMPLES_DIR.glob("*.py"))


@pytest.mark.parametrize("file", EXAMPLES, ids=[file.name for file in EXAMPLES])
def test_example_runs_without_warnings(file: Path, tmp_path: Path):
    done = subprocess.run([sys.executable, "-W", "error", str(file)], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_cluster_example_uses_existing_options_and_parameters():
    manifest = yaml.safe_load((EXAMPLES_DIR / "kuberay.yaml").read_text())
    program, command, *words = manifest["spec"]["entrypoint"].split()
    help_page = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
    assert program == "kinrank"
    assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[\w-]+", help_page))
    settings = [word for word in words if "=" in word]
    assert RANKERS[DEFAULT_RANKER](**parse_settings(RANKERS[DEFAULT_RANKER], settings)).n_cells == 65_536
