# ruff: noqa: T201 - a script
"""Run a service by a command, check what it promises, and end it. scripts/image calls this, with nothing but Python.

The service listens on port 8080 with a model of `kinrank.datasets.make_two_camps`. The folder of the data has a key of
the role query and one of the role admin, in files of these names.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

PORT = 8080
UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}
JUDGED = {"qid": "new", "ids": ["x", "y"], "features": [[0.1, 1], [0.9, 1]], "grades": [0, 1]}


def request(method: str, path: str, body: object = None, key: str = "") -> tuple[int, Any]:
    """Return status and body of a response, or 0 if there is none."""
    connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    try:
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()


def wait_until(condition: Callable[[], bool], seconds: float, process: subprocess.Popen[bytes]) -> float:
    """Return the seconds until a condition holds, and fail if it never does or the process ends."""
    start = time.monotonic()
    while not condition():
        assert process.poll() is None, "the command has ended"
        assert time.monotonic() < start + seconds, f"the condition did not hold within {seconds:g} seconds"
        time.sleep(0.02)
    return time.monotonic() - start


def processes(user: int) -> list[int]:
    """Return the processes of the service, which all belong to this user."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words, owner = (folder / "cmdline").read_bytes().split(b"\0"), (folder / "status").read_text()
        except OSError:
            continue  # it has just ended
        if any(word.endswith(b"/kinrank") for word in words) and b"serve" in words and f"\nUid:\t{user}\t" in owner:
            found.append(int(folder.name))
    return sorted(found)


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def check_service(data: Path, judgments: bool) -> None:
    """Check the answers of a service that is ready."""
    query, admin = ((data / name).read_text().strip() for name in ("query", "admin"))
    assert request("GET", "/healthz")[0] == 200
    assert request("POST", "/v1/rank", UP)[0] == 401
    status, ranked = request("POST", "/v1/rank", UP, query)
    assert (status, ranked["ids"], ranked["fallback"]) == (200, ["b", "c", "a"], None), (status, ranked)
    if judgments:
        body = {"queries": [JUDGED], "source": "image"}
        assert request("POST", "/v1/judgments", body, query)[0] == 403
        assert request("POST", "/v1/judgments", body, admin)[0] == 200


def main() -> None:
    """Start the command, wait until the service is ready, check it, and end it by SIGTERM."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="Folder of the keys.")
    parser.add_argument("--user", type=int, required=True, help="User id that the processes must have.")
    parser.add_argument("--processes", type=int, default=1, help="How many processes serve.")
    parser.add_argument("--supervised", action="store_true", help="Whether the command starts killed processes again.")
    parser.add_argument("--log", type=Path, required=True, help="File for the output of the command.")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    assert request("GET", "/healthz")[0] == 0, f"port {PORT} is in use"
    with arguments.log.open("wb") as log:
        started = subprocess.Popen(arguments.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        seconds = wait_until(lambda: request("GET", "/readyz")[0] == 200, 600.0, started)
        wait_until(lambda: len(processes(arguments.user)) == arguments.processes, 60.0, started)
        spent = max(map(cpu_seconds, processes(arguments.user)))
        print(f"ready after {seconds:.1f} s, {spent:.1f} s of CPU")
        check_service(arguments.data, judgments=not arguments.supervised)
        serving = processes(arguments.user)
        if arguments.supervised:
            os.kill(serving[0], signal.SIGKILL)
            wait_until(lambda: len(set(processes(arguments.user)) - set(serving)) == 1, 60.0, started)
            wait_until(lambda: request("GET", "/readyz")[0] == 200, 60.0, started)
            check_service(arguments.data, judgments=False)
            started.terminate()
        else:
            for process in serving:
                os.kill(process, signal.SIGTERM)
        started.wait(120)
        assert processes(arguments.user) == []
        if not arguments.supervised:
            assert '"event":"stopped"' in arguments.log.read_text(), "the service was killed before it had ended"
    except BaseException:
        print(arguments.log.read_text(errors="replace")[-4000:])
        raise
    finally:
        for process in processes(arguments.user):
            os.kill(process, signal.SIGKILL)
        if started.poll() is None:
            started.terminate()
    print("all checks hold")


if __name__ == "__main__":
    main()
