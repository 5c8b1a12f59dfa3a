"""All figures of the papers in under 25 minutes on 2 cores, though killed on the way; every claim is as expected.

The program is run as a user runs it, with as many processes as there are cores. It is killed once a third of its
pieces are kept, and started again: minutes are those of both runs together, and so is the work that was lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import data_dir, log_progress
from reproduction import results
from reproduction.catalog import PARTS
from reproduction.results import Results
from reproduction.run import usable_cores


def run() -> dict[str, object]:
    """Minutes, exit code, and claims that hold."""
    pieces = sum(len(part.pieces) for part in PARTS.values())
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "reproduction", "all", "--data", data_dir(), "--out", folder]
        start = time.perf_counter()
        first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while first.poll() is None and _kept(folder) < pieces // 3:
            time.sleep(0.5)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        kept, until_killed = _kept(folder), time.perf_counter() - start
        log_progress(f"killed after {until_killed:.0f} s with {kept} of {pieces} pieces")
        second = subprocess.run(command, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        found = Results.read(Path(folder) / results.FILE)
    verdicts = [verdict for some in found.verdicts().values() for verdict in some]
    return {
        "cores": usable_cores(),
        "pieces": pieces,
        "pieces kept when killed": kept,
        "minutes until killed": round(until_killed / 60, 1),
        "minutes": round(seconds / 60, 1),
        "CPU minutes of kept work": round(sum(each["cpu"] for each in found.seconds.values()) / 60, 1),
        "exit code": second.returncode,
        "claims": len(verdicts),
        "claims reproduced": sum(verdict.holds for verdict in verdicts),
        "claims not as expected": sum(not verdict.as_expected for verdict in verdicts),
    }


def _kept(folder: str) -> int:
    return len(list(Path(folder).glob("pieces/*/[!.]*/manifest.json")))
