"""A server of one process with a folder of its own, for tests and demonstrations: as PostgreSQL.

Servers listen on the loopback interface only and have no password. They are stored with the other engines, see
engine_servers.py.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from engine_servers import UNPRIVILEGED, engines_folder, fail, process_of, run

START_TIMEOUT = 120.0
"""Seconds to wait for the server to respond."""


@dataclass(frozen=True)
class SingleServer(ABC):
    """A server on a port."""

    name: ClassVar[str]
    default_port: ClassVar[int]
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    port: int

    @property
    def folder(self) -> Path:
        """Folder with settings, data, output and process id."""
        return engines_folder() / "run" / f"{self.name}-{self.port}"

    @property
    def pid(self) -> int | None:
        """Process id, or None if it is not running."""
        return process_of(self.folder)

    @property
    def output(self) -> str:
        """The last lines that the server printed."""
        return (self.folder / "out").read_text()[-2000:]

    @property
    @abstractmethod
    def address(self) -> str:
        """Address to connect to."""

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables of the process."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.folder)}

    @abstractmethod
    def install(self) -> None:
        """Download the server and verify it, unless it is installed."""

    @abstractmethod
    def configure(self) -> list[str]:
        """Write settings into the empty folder, and return the command that runs the server."""

    @abstractmethod
    def responds(self) -> bool:
        """Return whether the server responds; fail if it is another one."""

    def start(self) -> None:
        """Start the server if it is not running, wait until it responds, and print its address."""
        self.install()
        launcher = None if self.pid else self.launch()
        deadline = time.monotonic() + START_TIMEOUT
        while not self.responds():
            if (launcher and launcher.poll() is not None) or time.monotonic() > deadline:
                fail(f"{self.address} does not respond; last lines of its output:\n{self.output}")
            time.sleep(0.1)
        print(self.address)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the server in the background, in an empty folder or, after `kill`, in the folder it had."""
        killed = self.folder / "killed"
        if killed.exists():
            command = json.loads(killed.read_text())
            killed.unlink()
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            command = self.configure()
            (self.folder / "command").write_text(json.dumps(command))
        with (self.folder / "out").open("ab") as output:
            settings = self.process_settings()
            process = subprocess.Popen(command, stdout=output, start_new_session=True, **settings)
        (self.folder / "pid").write_text(str(process.pid))
        return process

    def process_settings(self) -> dict[str, Any]:
        """Return how to run a process of the server: in its folder, and never as root."""
        user = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else pwd.getpwuid(os.getuid())
        run("chown", "-R", f"{user.pw_uid}:{user.pw_gid}", str(self.folder))
        identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
        streams = {"stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT}
        return {"cwd": self.folder, "env": self.environment, **streams, **identity}

    def kill(self) -> None:
        """Kill the server as a crash does, and keep its data for the next `start`."""
        if pid := self.pid:
            os.kill(pid, signal.SIGKILL)
            deadline = time.monotonic() + START_TIMEOUT
            # Until it is gone from the table of processes: PostgreSQL refuses to start while its old id is in it.
            while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
                time.sleep(0.02)
            shutil.copy(self.folder / "command", self.folder / "killed")

    def stop(self) -> None:
        """Stop the server by its process id, and delete its data."""
        for signal_number in (self.stop_signal, signal.SIGKILL):
            if pid := self.pid:
                os.kill(pid, signal_number)
            deadline = time.monotonic() + 20
            while self.pid and time.monotonic() < deadline:
                time.sleep(0.1)
        shutil.rmtree(self.folder, ignore_errors=True)

    @classmethod
    def main(cls, description: str) -> None:
        """Run the command line."""
        parser = argparse.ArgumentParser(
            prog="scripts/engine", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        parser.add_argument("command", choices=("install", "start", "kill", "stop"))
        parser.add_argument("name", choices=(cls.name,))
        parser.add_argument("--port", type=int, default=cls.default_port)
        arguments = parser.parse_args()
        server = cls(arguments.port)
        getattr(server, arguments.command)()
