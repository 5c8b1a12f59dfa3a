"""Worker processes end with their parent, even if it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.processes import children, is_alive, wait_until

DRIVER = """
import sys
from kinrank.scale import Processes
from tests.scale.test_processes import work_on
list(Processes(2).map_unordered(work_on, sys.argv[1:]))
"""


def work_on(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(3600)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_when_the_driver_is_killed(how: signal.Signals, tmp_path: Path) -> None:
    started = [tmp_path / "a", tmp_path / "b"]
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, *map(str, started)], cwd=Path(__file__).parents[2])
    workers: list[int] = []
    try:
        wait_until(lambda: all(file.exists() and file.read_text() for file in started))
        workers = [int(file.read_text()) for file in started]
        assert set(workers) <= set(children(driver.pid))
        driver.send_signal(how)
        assert driver.wait() == -how
        wait_until(lambda: not any(map(is_alive, workers)))
    finally:
        driver.kill()
        driver.wait()
        for worker in filter(is_alive, workers):
            os.kill(worker, signal.SIGKILL)
