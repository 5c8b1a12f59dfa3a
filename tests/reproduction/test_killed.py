from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reproduction import results
from reproduction.catalog import experiments_of
from reproduction.results import Results
from tests.processes import children, is_alive, wait_until
from tests.reproduction.test_page import all_pages, page_verdicts

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_killed_run_resumes_and_gives_the_documented_verdicts(data_dir: Path, tmp_path: Path):
    command = [sys.executable, "-m", "reproduction", "map-local", "--data", data_dir, "--out", tmp_path, "--jobs", "2"]

    def cached() -> dict[Path, int]:
        return {file: file.stat().st_mtime_ns for file in tmp_path.glob("tasks/*/[!.]*/manifest.json")}

    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(cached)
        workers = children(running.pid)
    finally:
        os.kill(running.pid, signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    finished = cached()
    n_tasks = sum(len(experiment.tasks) for experiment in experiments_of("map-local"))
    assert 0 < len(finished) < n_tasks
    assert len(workers) >= 2
    wait_until(lambda: not any(map(is_alive, workers)))

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert finished.items() <= cached().items()  # finished tasks were not run again
    assert len(cached()) == n_tasks
    # The page in the repository must show the verdicts of this run, not only those of the figures stored with it.
    shown = page_verdicts(all_pages())
    verdicts = Results.read(tmp_path / results.FILE).verdicts()["geng"]
    for verdict in verdicts:
        assert shown[verdict.claim.source, verdict.claim.statement] == str(verdict)
    assert f"{sum(verdict.holds for verdict in verdicts)} of {len(verdicts)} claims reproduced" in done.stdout
    assert (tmp_path / "figures" / "reproduction-when-local.svg").exists()
