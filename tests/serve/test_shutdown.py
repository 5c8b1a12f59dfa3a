"""How a process ends: by a second SIGTERM, with calls that hang, and under systemd."""

from __future__ import annotations

import http.client
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kinrank.serve._keys import Role, add_key
from tests.conftest import missing
from tests.processes import PATIENCE, wait_until
from tests.serve.asgi import Client  # noqa: F401 - these tests need the extra
from tests.serve.servers import RANKED, UP, free_port, one_thread

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "kinrank@.service"
HANGING_SERVER = """
import sys, time
from kinrank.serve import Service, Settings
from kinrank.serve._http import app, run
app.EXIT_SECONDS = 1.0
Service.weights = Service.close = lambda *_, **__: time.sleep(1000)
run.run(run.Options({"default": sys.argv[1]}, port=int(sys.argv[2]), settings=Settings(drain_seconds=0.1)))
"""


def systemd(tool: str) -> str:
    program = shutil.which(tool)
    if program is None:
        missing(f"{tool} is not installed: apt-get install systemd")
    return program


@contextmanager
def running(command: list[str | Path], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stream:
        process = subprocess.Popen(command, stderr=stream, env=one_thread())
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def status(port: int, method: str, path: str, body: bytes | None = None, key: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        return response.status, response.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


@pytest.mark.slow
def test_calls_that_hang_do_not_keep_the_process_from_exiting(tmp_path: Path):
    port = free_port()
    command = [sys.executable, "-c", HANGING_SERVER, tmp_path, str(port)]
    with running(command, tmp_path / "log") as process:
        wait_until(lambda: status(port, "GET", "/healthz")[0] == 200)
        code, body = status(port, "POST", "/v1/weights", UP)
        assert (code, json.loads(body)["fallback"]) == (200, "late")  # the call goes on in its thread
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 1  # forced, because the database does not close either
    assert '"event":"draining"' in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_unit_serves_on_the_socket_of_systemd_until_a_second_sigterm(models: Path, tmp_path: Path):
    port, log = free_port(), tmp_path / "log"
    key = add_key(tmp_path / "keys", "web", Role.QUERY)
    started = next(line for line in UNIT.read_text().splitlines() if line.startswith("ExecStart="))
    program, *args = shlex.split(started.partition("=")[2])
    here = {"/var/lib/kinrank/models/current": models / "knn", "/etc/kinrank/keys": tmp_path / "keys"}
    kinrank = [sys.executable, "-c", "from kinrank.cli import main; main()"]
    listen = [systemd("systemd-socket-activate"), f"--listen=127.0.0.1:{port}"]
    listen += [f"--setenv={name}" for name in ("PYTHONPATH", "PATH", "OMP_NUM_THREADS") if name in os.environ]
    assert program == "/opt/kinrank/bin/kinrank"
    command = [
        *listen,
        *kinrank,
        *(here.get(each, each) for each in args),
        f"--set=drain_seconds={10 * PATIENCE:g}",
        "--deadline=60000",
    ]
    with running(command, log) as process:
        wait_until(lambda: status(port, "GET", "/readyz")[0] == 200)
        code, body = status(port, "POST", "/v1/rank", UP, key)
        assert (code, json.loads(body)["ids"]) == (200, RANKED)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: status(port, "GET", "/readyz")[0] == 503)
        assert status(port, "POST", "/v1/rank", UP, key)[0] == 200  # it drains
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)  # it would go on draining
    assert '"event":"stopped"' in log.read_text()  # not killed


def test_units_are_valid_and_sandboxed(tmp_path: Path):
    for file in (UNIT, DEPLOY / "kinrank.socket"):
        text = file.read_text().replace("/opt/kinrank/bin/kinrank", sys.executable)  # must exist
        (tmp_path / file.name).write_text(text)
    analyze, units = systemd("systemd-analyze"), [str(tmp_path / name) for name in ("kinrank.socket", UNIT.name)]
    done = subprocess.run([analyze, "verify", *units], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    # Exposure from 0 to 10 of systemd's own table; it was 8.3 without most of the settings.
    limits = ("--offline=true", "--threshold=35")
    done = subprocess.run([analyze, "security", *limits, units[1]], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
