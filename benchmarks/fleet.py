"""Three replicas on one PostgreSQL lose no acknowledged judgment or click when a part of them fails.

Each replica ranks under light load, takes judgments and clicks, and reaches the database through a proxy of its own. In
every round one thing fails for a second: PostgreSQL is killed, a replica is killed, a proxy drops everything without a
word, or the operator restores a dump that is a second old. Meanwhile ranking goes on, by the model, in every replica
that is alive. Within 10 seconds of its end, every replica must have stored one more judgment and one more click,
learned all judgments that were acknowledged until then, and noticed every restored dump. At the end everything that was
acknowledged must be in the database unless a dump was restored over it, and all replicas must have learned the same
judgments and rank alike by the clicks. Every click is sent to two replicas, and must count once.

``--adding everything`` adds, all at once and for the whole time: a popular query, of which fifty lists and clicks come
every tenth of a second; one replica whose clock is three days ahead; lists that have expired; and two jobs at a time
that add days of a log to one folder of evidence. The counts must then be those of counting the stored lists, the
expired lists must be gone, and the folder must have what one job after the other counts.

Needs `scripts/engine` and loopback only; ``--rounds`` sets how often, and ``--minutes`` when no further round
begins.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow.parquet as pq

from benchmarks.common import log_progress
from benchmarks.engine_msrd import CHECKOUT
from kinrank import KinRanker, KnnRanker
from kinrank.datasets import load_movies, make_two_camps, simulate_clicks
from kinrank.memory.evidence import Evidence
from kinrank.serve._database import open_database
from kinrank.serve._events.store import EventStore
from kinrank.serve._judgments import open_store
from kinrank.serve._keys import Role, add_key

OPTIONS = {
    "rounds": ("100", "175", "32", "12", "4"),
    "minutes": ("25", "15", "10"),
    "adding": ("nothing", "everything"),
}
FAULTS = ("database", "replica", "network", "restore")
REPLICAS, CATCH_UP_SECONDS, FAULT_SECONDS = 3, 10.0, 1.0
WAIT_SECONDS = 120.0  # until a run fails
PORT = 15842
UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}
TEXTS = ("alien", "brazil", "cube")
OLD, HOT, HOT_BATCH, N_OLD, AHEAD = "old", "iphone", 50, 200, 3 * 86_400
LOOKS = sum(1 / rank for rank in range(1, 1 + len(UP["ids"])))  # of a list
MIN_CLIENTS = 3
JOB = (sys.executable, "-c", "from kinrank.cli import main; main()", "clicks", "--model", "none", "--evidence")


class Proxy:
    """Forwards connections to a port; while `dropping`, it swallows everything instead."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self.dropping = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(client)
            if self.dropping:
                continue
            with suppress(OSError):
                server = socket.create_connection(("127.0.0.1", self._target))
                self._open.append(server)
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pump, args=pair, daemon=True).start()
                continue
            client.close()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if not self.dropping:
                    sink.sendall(data)
        if not self.dropping:
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def heal(self) -> None:
        """Forward again. Connections that have lost data are reset."""
        self.dropping = False
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        self._open = []

    def close(self) -> None:
        """Accept no more connections and reset those that are open."""
        self._listener.close()
        self.heal()


class Replica:
    """A forked server, the load on it, and its proxy."""

    def __init__(self, parent: Parent, database: int, keys: dict[str, str], ahead: int = 0) -> None:
        self._parent = parent
        self._keys = keys
        self._ahead = ahead
        self.proxy = Proxy(database)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.pid = 0
        self.rankings: Counter[str] = Counter()
        self._stop = threading.Event()
        self.start()
        threading.Thread(target=self._rank, daemon=True).start()

    def start(self) -> None:
        """Fork the server and wait until it is ready."""
        address = f"postgresql://postgres@127.0.0.1:{self.proxy.port}/judgments"
        child = self._parent.fork(self.port, address, self._ahead)
        wait_for(lambda: self.request("GET", "/readyz")[0] == 200, WAIT_SECONDS)
        self.pid = child

    def kill(self) -> None:
        """Kill the server."""
        pid, self.pid = self.pid, 0
        os.kill(pid, signal.SIGKILL)

    def request(
        self, method: str, path: str, body: object = None, role: str = "query", model: str = "judged"
    ) -> tuple[int, Any, Any]:
        """Return status, body and headers of a response."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT_SECONDS)
        headers = {"Authorization": f"Bearer {self._keys[role]}", "Content-Type": "application/json"}
        headers["X-Kinrank-Model"] = model
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read()), response.headers
        finally:
            connection.close()

    def judge(self, qid: str) -> int | None:
        """Send a judged query and return its revision if it was acknowledged."""
        query = {"qid": qid, "ids": ["x", "y"], "features": [[0.1, 1], [0.9, 1]], "grades": [0, 1]}
        with suppress(OSError, http.client.HTTPException, ValueError):
            status, _, headers = self.request("POST", "/v1/judgments", {"queries": [query], "source": "fleet"}, "admin")
            return int(headers["x-kinrank-revision"]) if status == 200 else None
        return None

    def report(self, numbers: Sequence[int], text: str) -> bool:
        """Send lists of a query, and a click on each, and return whether they were acknowledged."""
        shown = {"user_query": text, "query_response_hit_ids": [OLD] if text == OLD else UP["ids"]}
        click = {"action_name": "click", "event_attributes": {"object": {"object_id": "c"}}}
        body: dict[str, list[Any]] = {"queries": [], "events": []}
        for number in numbers:
            names = {"query_id": f"list {number}", "client_id": f"client {number}"}
            body["queries"].append(names | shown)
            if text != OLD:
                body["events"].append(names | click | {"event_id": f"click {number}"})
        with suppress(OSError, http.client.HTTPException, ValueError):
            return self.request("POST", "/v1/events", body, "events", "chosen")[0] == 200
        return False

    @property
    def learned(self) -> tuple[int, int, int]:
        """The revision that the model has learned, the number of its judged queries, and the revision of the clicks.

        All are -1 if it does not respond.
        """
        with suppress(OSError, http.client.HTTPException, ValueError):
            models = self.request("GET", "/v1/model")[1]["models"]
            judged, chosen = models["judged"]["loaded"], models["chosen"]["loaded"]
            revision = int(judged["version"].rpartition("+")[2].partition(".")[0])
            return revision, int(judged["judged_queries"]), int(chosen["evidence_revision"])
        return -1, -1, -1

    def order(self, text: str) -> object:
        """Return the ranking by the clicks of a query."""
        status, body, _ = self.request("POST", "/v1/rank", {**UP, "text": text}, model="chosen")
        return status, body["ids"], body["scores"], body["fallback"]

    def _rank(self) -> None:
        for model in itertools.cycle(("judged", "chosen")):
            if self._stop.wait(0.05):
                return
            pid = self.pid
            try:
                status, body, _ = self.request("POST", "/v1/rank", {**UP, "text": TEXTS[0]}, model=model)
                right = status == 200 and body["fallback"] is None
                right = right and (model == "chosen" or body["ids"] == ["b", "c", "a"])
                outcome = "ranked" if right else f"{status} {body.get('fallback')}"
            except (OSError, http.client.HTTPException, ValueError):
                outcome = "no response"
            self.rankings[outcome if pid and pid == self.pid else "killed"] += 1

    def close(self) -> None:
        """Stop the load, the server and the proxy."""
        self._stop.set()
        if self.pid:
            self.kill()
        self.proxy.close()


class Parent:
    """A warm process that forks servers, so that they start at once."""

    def __init__(self, place: Path) -> None:
        command = [sys.executable, "-m", "benchmarks.fleet", str(place)]
        with (place / "log").open("w") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=CHECKOUT
            )

    def fork(self, port: int, address: str, ahead: int) -> int:
        """Return the process id of a new server, whose clock is some seconds ahead."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{port} {address} {ahead}\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        """End the parent."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        self._process.wait(WAIT_SECONDS)


class Fleet:
    """The replicas, the database, and the judgments that were acknowledged."""

    def __init__(self, place: Path, port: int, everything: bool) -> None:
        self.port = port
        self.server = engine("start", port)
        with psycopg.connect(self.server, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS judgments WITH (FORCE)")
            connection.execute("CREATE DATABASE judgments")
        self.log = place / "log"
        camps = make_two_camps(n_queries=60, n_docs=10, seed=0)
        camps = camps.replace(qid=camps.qid.astype(str))
        ranker = KnnRanker(5).fit(camps)
        ranker.save(place / "judged", examples=camps[:5])
        texts = {"text": np.array([f"query {number}" for number in range(60)])}
        named = camps.replace(query_columns=texts, doc_id=np.arange(len(camps.X)).astype(str))
        KinRanker(5, encoder=None, memory=False, settings={"n_members": 2, "n_repeats": 1}).fit(named).save(
            place / "chosen"
        )
        keys = {role.value: add_key(place / "keys", role.value, role) for role in Role}
        self.parent = Parent(place)
        ahead = [0, 0, AHEAD if everything else 0]
        self.replicas = [Replica(self.parent, port, keys, each) for each in ahead]
        self.acknowledged: dict[str, int] = {}
        self.clicks: set[int] = set()
        self.restores, self.restored_over = 0, 0
        self._numbers = itertools.count()
        self._stop = threading.Event()
        self._writers = [threading.Thread(target=self._write, args=(replica,)) for replica in self.replicas]
        self.evidence: EvidenceJobs | None = None
        if everything:
            self._expire_lists()
            self.evidence = EvidenceJobs(place / "jobs", self._stop)
            self._writers += [threading.Thread(target=self._write_hot), threading.Thread(target=self.evidence.run)]
        for writer in self._writers:
            writer.start()

    def _write(self, replica: Replica) -> None:
        while not self._stop.wait(0.1):
            self._judge(replica)
            self._click(replica)

    def _write_hot(self) -> None:
        for replica in itertools.cycle(self.replicas):
            if self._stop.wait(0.1):
                return
            numbers = [next(self._numbers) for _ in range(HOT_BATCH)]
            if replica.report(numbers, HOT):
                self.clicks.update(numbers)

    def _expire_lists(self) -> None:
        """Store lists, and make them three days old."""
        assert self.replicas[0].report([next(self._numbers) for _ in range(N_OLD)], OLD)
        with psycopg.connect(self.server.rpartition("/")[0] + "/judgments", autocommit=True) as connection:
            connection.execute("UPDATE kinrank_lists SET day = day - 3")

    def _judge(self, replica: Replica) -> bool:
        """Judge a new query and return whether that was acknowledged."""
        qid = f"{replica.port} {next(self._numbers)}"
        revision = replica.judge(qid)
        if revision is not None:
            self.acknowledged[qid] = revision
        return revision is not None

    def _click(self, replica: Replica) -> bool:
        """Send a new click to two replicas and return whether the first one acknowledged it."""
        number, other = next(self._numbers), self.replicas[self.replicas.index(replica) - 1]
        answers = [each.report([number], TEXTS[number % len(TEXTS)]) for each in (replica, other)]
        if any(answers):
            self.clicks.add(number)
        return answers[0]

    @contextmanager
    def fault(self, number: int) -> Iterator[str]:
        """Let something fail for the time of the block."""
        kind = FAULTS[number % len(FAULTS)]
        replica = self.replicas[number // len(FAULTS) % REPLICAS]
        if kind == "database":
            engine("kill", self.port)
            yield kind
            engine("start", self.port)
        elif kind == "replica":
            replica.kill()
            yield kind
            replica.start()
        elif kind == "restore":
            in_dump, clicks_in_dump = dict(self.acknowledged), set(self.clicks)
            copy_database(self.server, "judgments", "dump")
            yield kind
            self.catch_up()  # every replica has learned something that is not in the dump
            copy_database(self.server, "dump", "judgments")
            self.restores += 1
            self.restored_over += len(self.acknowledged) - len(in_dump) + len(self.clicks) - len(clicks_in_dump)
            self.acknowledged, self.clicks = in_dump, clicks_in_dump
        else:
            replica.proxy.dropping = True
            yield kind
            replica.proxy.heal()

    def catch_up(self) -> float:
        """Return the seconds until every replica stored a judgment and a click, noticed restores and learned all."""
        start = time.monotonic()
        for replica in self.replicas:
            wait_for(lambda replica=replica: self._judge(replica), WAIT_SECONDS)  # type: ignore[misc]
            wait_for(lambda replica=replica: self._click(replica), WAIT_SECONDS)  # type: ignore[misc]
        wanted = max(self.acknowledged.values())
        # What a replica learned before a dump was restored may be of a higher revision.
        wait_for(lambda: self.log.read_text().count('"relearned"') >= REPLICAS * self.restores, WAIT_SECONDS)
        wait_for(lambda: all(replica.learned[0] >= wanted for replica in self.replicas), WAIT_SECONDS)
        return time.monotonic() - start

    def finish(self) -> dict[str, object]:
        """Stop the writers, and return what is in the database and in the replicas."""
        self._stop.set()
        for writer in self._writers:
            writer.join()
        address = self.server.rpartition("/")[0] + "/judgments"
        store = open_store(address)
        stored = store.read("judged", limit=1_000_000)
        store.close()
        wait_for(lambda: all(replica.learned[0] == stored.revision for replica in self.replicas), WAIT_SECONDS)
        events = EventStore(open_database(address), MIN_CLIENTS)
        one = "SELECT 1 FROM"
        wait_for(
            lambda: not rows_of(events, f"{one} kinrank_pending UNION ALL {one} kinrank_news LIMIT 1"), WAIT_SECONDS
        )
        clicks = {int(name.split()[1]) for (name,) in rows_of(events, "SELECT list FROM kinrank_clicks")}
        [[n_lists, n_old]] = rows_of(
            events, f"SELECT COUNT(*), COUNT(*) FILTER (WHERE documents = '[\"{OLD}\"]') FROM kinrank_lists"
        )
        counted = events.read("chosen")
        events.database.close()
        wait_for(lambda: all(replica.learned[2] == counted.revision for replica in self.replicas), WAIT_SECONDS)
        orders = [[replica.order(text) for text in TEXTS] for replica in self.replicas]
        return {
            "acknowledged": len(self.acknowledged),
            "restored over": self.restored_over,
            "restores": self.restores,
            "restores noticed": self.log.read_text().count('"relearned"'),
            "of which lost": len(set(self.acknowledged) - set(stored.queries)),
            "stored": len(stored.queries),
            "replicas that have learned all": sum(
                replica.learned[1] == 60 + len(stored.queries) for replica in self.replicas
            ),
            "clicks acknowledged": len(self.clicks),
            "clicks lost": len(self.clicks - clicks),
            "clicks stored": len(clicks),
            "clicks counted": sum(cell.choices for cell in counted.cells),
            "lists stored": n_lists,
            "expired lists left": n_old,
            "looks counted": round(sum(cell.looks for cell in counted.cells if cell.document != OLD), 3),
            "looks of the stored lists": round(LOOKS * n_lists, 3),
            "evidence": "not run" if self.evidence is None else self.evidence.verdict(),
            "replicas that rank alike": sum(order == orders[0] for order in orders),
            "rankings": dict(sum((replica.rankings for replica in self.replicas), Counter())),
        }

    def close(self) -> None:
        """Stop everything."""
        self._stop.set()
        for replica in self.replicas:
            replica.close()
        self.parent.close()
        engine("stop", self.port)


class EvidenceJobs:
    """Jobs that add days of a log to one folder, two at a time."""

    def __init__(self, place: Path, stop: threading.Event) -> None:
        self._place, self._stop = place, stop
        self._days: list[str] = []
        place.mkdir()
        movies = load_movies()[:40]
        self._log = simulate_clicks(movies, movies.X[:, 0], n_lists=20)

    def run(self) -> None:
        """Start two jobs again and again, until the fleet stops."""
        while not self._stop.is_set():
            files = [self._day(len(self._days)) for _ in range(2)]
            jobs = [
                subprocess.Popen(
                    [*JOB, "together", file], cwd=self._place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                for file in files
            ]
            assert [job.wait(300) for job in jobs] == [0, 0]
            self._stop.wait(15.0)

    def _day(self, number: int) -> str:
        file = f"day{number}.parquet"
        rows = self._log.slice(number * 500 % self._log.num_rows, 500)
        pq.write_table(rows, self._place / file)
        self._days.append(file)
        return file

    def verdict(self) -> str:
        """Add all days one after the other, and compare."""
        for file in self._days:
            subprocess.run(
                [*JOB, "alone", file], cwd=self._place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        states = [Evidence.open(self._place / name).get_state() for name in ("together", "alone")]
        same = all(np.array_equal(np.sort(states[0][name]), np.sort(states[1][name])) for name in ("looks", "choices"))
        return f"{len(self._days)} days, two at a time: {'as one after the other' if same else 'other counts'}"


def run(rounds: str, minutes: str = "25", adding: str = "nothing", port: int = PORT) -> dict[str, object]:
    """Run the rounds and return what was acknowledged, stored, learned and ranked."""
    seconds: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place:
        fleet = Fleet(Path(place), port, adding == "everything")
        try:
            end = time.monotonic() + 60 * float(minutes)
            for number in range(int(rounds)):
                if time.monotonic() > end:
                    break
                with fleet.fault(number) as kind:
                    time.sleep(FAULT_SECONDS)
                seconds.setdefault(kind, []).append(fleet.catch_up())
                log_progress(f"round {number + 1}, {kind}: all replicas caught up in {seconds[kind][-1]:.1f} s")
            figures = fleet.finish()
        finally:
            fleet.close()
    slowest = {kind: round(max(each), 1) for kind, each in seconds.items()}
    held = (
        figures["of which lost"] == 0
        and figures["clicks lost"] == 0
        and figures["clicks counted"] == figures["clicks stored"]
        and figures["replicas that have learned all"] == REPLICAS
        and figures["replicas that rank alike"] == REPLICAS
        and figures["looks counted"] == figures["looks of the stored lists"]
        and figures["expired lists left"] == 0
        and "other counts" not in str(figures["evidence"])
        and figures["restores noticed"] == REPLICAS * fleet.restores
        and set(figures["rankings"]) <= {"ranked", "killed"}  # type: ignore[call-overload]
        and max(slowest.values()) <= CATCH_UP_SECONDS
    )
    medians = {kind: round(statistics.median(each), 1) for kind, each in seconds.items()}
    return {
        "rounds": sum(map(len, seconds.values())),
        **figures,
        "median s": medians,
        "slowest s": slowest,
        "holds": held,
    }


def rows_of(store: EventStore, query: str) -> list[Any]:
    """Return the rows of a query, in a transaction of its own."""
    with store.database.reading() as execute:
        return list(execute(query, ()))


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition holds; a connection that is refused counts as no."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError, http.client.HTTPException):
            if condition():
                return
        time.sleep(0.05)
    raise TimeoutError(f"the condition did not hold within {seconds:g} seconds")


def copy_database(server: str, source: str, target: str) -> None:
    """Replace a PostgreSQL database by a copy of another one; all connections are cut."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {target} WITH (FORCE)")
        connection.execute(f"ALTER DATABASE {source} WITH ALLOW_CONNECTIONS false")
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (source,))
        connection.execute(f"CREATE DATABASE {target} TEMPLATE {source}")
        connection.execute(f"ALTER DATABASE {source} WITH ALLOW_CONNECTIONS true")


def engine(command: str, port: int) -> str:
    """Run a command of scripts/engine for PostgreSQL and return what it prints."""
    script = [str(CHECKOUT / "scripts" / "engine"), command, "postgresql", f"--port={port}"]
    environment = {**os.environ, "PYTHON": sys.executable}
    return subprocess.run(script, check=True, env=environment, stdout=subprocess.PIPE, text=True).stdout.strip()


def set_clock_ahead(seconds: float) -> None:
    """Let the clock of this process be ahead."""
    now = time.time
    time.time = lambda: now() + seconds


def fork_servers(place: str) -> None:
    """Fork a server for every line ``PORT ADDRESS AHEAD`` on standard input, and print its process id."""
    import uvicorn

    from kinrank.serve import Service, Settings
    from kinrank.serve._http.app import create_app
    from kinrank.serve._http.logs import JsonLog
    from kinrank.serve._http.metrics import Metrics
    from kinrank.serve._keys import KeyRing

    settings = Settings(deadline=60.0, min_clients=MIN_CLIENTS, trusted=("events",))
    models = {name: Path(place, name) for name in ("judged", "chosen")}
    with Service(models, settings=settings):
        pass  # compiles; its threads end before the first fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        port, address, ahead = line.split()
        child = os.fork()
        if child == 0:
            set_clock_ahead(float(ahead))
            metrics = Metrics()
            service = Service(models, settings=settings, observer=metrics, judgments=address)
            app = create_app(service, metrics=metrics, keys=KeyRing(Path(place, "keys")))
            JsonLog().start()
            uvicorn.run(app, host="127.0.0.1", port=int(port), log_config=None, access_log=False)
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    fork_servers(*sys.argv[1:])
