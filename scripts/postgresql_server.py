"""Install, start and stop a local PostgreSQL with pgvector, for tests and demonstrations.

scripts/engine install postgresql            download the server, once
scripts/engine start postgresql [--port P]   start the server unless it is running, wait for it, print the address
scripts/engine stop postgresql [--port P]    stop the server and delete its data

It is stored with the other engines (see engine_servers.py), listens on the loopback interface only and has no password.
The binaries are those of the Python package pgserver, which is not installed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from engine_servers import UNPRIVILEGED, engines_folder, fail, log, process_of, run

VERSION = "16.2"
PACKAGE = "pgserver==0.1.4"
SHA256 = "d595789b47624a3d963aa9aa6359da9be31beb7e61f1a45541953242068b8813"  # of the wheel
WHEEL = ("--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--platform=manylinux2014_x86_64")
PORT = 5442
START_TIMEOUT = 60.0
"""Seconds to wait for the server to respond."""


def binaries() -> Path:
    """Return the folder of the executables."""
    return engines_folder() / f"postgresql-{VERSION}" / "bin"


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server."""

    port: int

    @property
    def folder(self) -> Path:
        """Folder with data, output and process id."""
        return engines_folder() / "run" / f"postgresql-{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id, or None if it is not running."""
        return process_of(self.folder)


def install() -> None:
    """Download the package and verify it, unless it is installed."""
    if (binaries() / "postgres").is_file():
        return
    engines_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=engines_folder()) as temporary:
        log(f"downloading postgresql {VERSION}")
        run(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", temporary, *WHEEL, PACKAGE)
        [wheel] = Path(temporary).glob("*.whl")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if digest != SHA256:
            fail(f"postgresql: the package has SHA-256 {digest}, expected {SHA256}; not installed")
        with zipfile.ZipFile(wheel) as package:
            package.extractall(temporary)
        unpacked = Path(temporary) / "pgserver" / "pginstall"
        (Path(temporary) / "pgserver.libs").rename(unpacked / "libs")
        for program in (unpacked / "bin").iterdir():
            program.chmod(0o755)
        run("chmod", "-R", "a+rX", str(unpacked))
        with suppress(OSError):  # another process has installed it
            unpacked.rename(binaries().parent)
    log(f"{binaries()}: postgresql {VERSION}")


def start(server: Server) -> None:
    """Start the server if it is not running, and wait until it responds."""
    install()
    launcher = None if server.pid else launch(server)
    deadline = time.monotonic() + START_TIMEOUT
    while not responds(server.port):
        if (launcher and launcher.poll() is not None) or time.monotonic() > deadline:
            output = (server.folder / "out").read_text()[-2000:]
            fail(f"postgresql does not respond on port {server.port}; last lines of its output:\n{output}")
        time.sleep(0.1)
    print(f"postgresql://postgres@127.0.0.1:{server.port}/postgres")


def responds(port: int) -> bool:
    """Return whether something accepts connections on the port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def launch(server: Server) -> subprocess.Popen[bytes]:
    """Create the data folder and start the server in the background."""
    user = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else pwd.getpwuid(os.getuid())
    shutil.rmtree(server.folder, ignore_errors=True)
    server.folder.mkdir(parents=True)
    run("chown", "-R", f"{user.pw_uid}:{user.pw_gid}", str(server.folder))
    identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    settings = {
        "cwd": server.folder,
        "env": {
            "PATH": os.environ["PATH"],
            "HOME": str(server.folder),
            "LC_ALL": "C.UTF-8",
            "LD_LIBRARY_PATH": str(binaries().parent / "libs"),
        },
        "stdin": subprocess.DEVNULL,
        **identity,
    }
    data = str(server.folder / "data")
    create = [str(binaries() / "initdb"), "--pgdata", data, "--username=postgres", "--auth=trust", "--no-sync"]
    with (server.folder / "out").open("wb") as output:
        if subprocess.run(create, stdout=output, stderr=subprocess.STDOUT, check=False, **settings).returncode:
            fail(f"initdb failed:\n{(server.folder / 'out').read_text()[-2000:]}")
        options = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        process = subprocess.Popen(
            [str(binaries() / "postgres"), "-D", data, "-p", str(server.port), "-c", "fsync=off", *options],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **settings,
        )
    (server.folder / "pid").write_text(str(process.pid))
    return process


def stop(server: Server) -> None:
    """Stop the server by its process id, and delete its data."""
    for signal_number in (signal.SIGINT, signal.SIGKILL):  # SIGINT is PostgreSQL's fast shutdown
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
    parser.add_argument("name", choices=("postgresql",))
    parser.add_argument("--port", type=int, default=PORT)
    arguments = parser.parse_args()
    if arguments.command == "install":
        install()
    elif arguments.command == "start":
        start(Server(arguments.port))
    else:
        stop(Server(arguments.port))


if __name__ == "__main__":
    main()
