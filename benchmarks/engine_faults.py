"""Kill one of three nodes while features are logged and searches run: the log is complete, searches succeed.

The log must equal a log without the kill, bit by bit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from benchmarks.common import log_progress
from benchmarks.engine_msrd import CHECKOUT, PORTS, WORKERS, running
from kinrank import QuerySet, read_parquet
from kinrank.engines import Engine, FeatureSet, connect
from kinrank.engines._logger import FeatureLogger, LogCounts, ResumableLog
from kinrank.engines.base import RetryingPool
from kinrank.engines.lucene import LuceneEngine
from kinrank.errors import EngineError
from scripts.engine_servers import SERVERS, Node
from tests.engines.engine_sample import FEATURES, WORDS, sample_documents

OPTIONS = {"engine": ("elasticsearch", "opensearch")}
# The sample features without vectors, whose mapping differs between the engines.
FEATURES_WITHOUT_VECTORS = "\n".join(line for line in FEATURES.splitlines() if "embedding" not in line)
FIELD_TYPES = {"title": "text", "body": "text", "votes": "integer", "price": "float", "sold": "boolean"}
SETTINGS = {
    "settings": {"index": {"number_of_shards": 3, "number_of_replicas": 1}},
    "mappings": {"properties": {name: {"type": kind} for name, kind in FIELD_TYPES.items()}},
}


@dataclass
class Searches:
    """Searches sent one after the other, and their results."""

    engine: LuceneEngine
    answered: int = 0
    short: int = 0
    errors: list[str] = field(default_factory=list)
    longest: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Search until `stop` is set."""
        while not self.stop.is_set():
            start = time.perf_counter()
            try:
                hits = self.engine.search("red car", size=10)
                self.answered += 1
                self.short += len(hits) < 10
            except EngineError as error:
                self.errors.append(str(error))
            self.longest = max(self.longest, time.perf_counter() - start)


class Killing:
    """Kills a process while requests of a log are in flight.

    Parameters
    ----------
    engine
        Engine whose requests are tracked from now on.
    pid
        Process to kill.
    after
        Number of queries to log before the kill.
    """

    def __init__(self, engine: Engine, pid: int, after: int) -> None:
        self.pid = pid
        self.after = after
        self.in_flight: set[object] = set()
        self.caught: set[object] = set()
        # In a thread, so that the log is not delayed.
        self.thread = threading.Thread(target=self._kill, daemon=True)
        log = engine.log

        def tracked(*args: object, **options: object) -> object:
            request = object()
            self.in_flight.add(request)
            try:
                return log(*args, **options)  # type: ignore[arg-type]
            finally:
                self.in_flight.discard(request)

        engine.log = tracked  # type: ignore[method-assign,assignment]

    def _kill(self) -> None:
        while len(self.in_flight) < WORKERS:
            time.sleep(0.0005)
        before = self.in_flight.copy()
        os.kill(self.pid, signal.SIGKILL)
        self.caught = before & self.in_flight


def run(engine: str) -> dict[str, object]:
    """Start three nodes and kill one of them."""
    with running(engine, nodes=3) as address:
        return log_during_kill(address, engine, PORTS[engine], n_queries=1000)


def log_during_kill(address: str, name: str, port: int, n_queries: int) -> dict[str, object]:
    """Log and search while node 2 is killed, and start the node again."""
    script = str(CHECKOUT / "scripts" / "engine")
    features = FeatureSet.parse(FEATURES_WITHOUT_VECTORS)
    with (
        connect(f"{address}/faults-{uuid.uuid4().hex}", features, timeout=20.0) as engine,
        tempfile.TemporaryDirectory() as work,
    ):
        assert isinstance(engine, LuceneEngine)
        documents = [
            (doc_id, {field: fields[field] for field in FIELD_TYPES if field in fields})
            for doc_id, fields in sample_documents(300)
        ]
        engine.index(documents, settings=SETTINGS)
        wait_for_replicas(engine)
        judged = judgments(n_queries, [doc_id for doc_id, _ in documents])
        log(engine, judged, Path(work) / "undisturbed.parquet")
        node = Node(SERVERS[name], port, 2).pid
        assert node is not None, "node 2 was not started by scripts/engine"
        killing = Killing(engine, node, after=n_queries // 3)
        searches = Searches(engine)
        searcher = threading.Thread(target=searches.run)
        searcher.start()
        try:
            counts, retries = log(engine, judged, Path(work) / "killed.parquet", killing)
        finally:
            searches.stop.set()
            searcher.join()
        log_progress(f"log during the kill: {counts}")
        same = identical(
            read_parquet(Path(work) / "killed.parquet"), judged, read_parquet(Path(work) / "undisturbed.parquet")
        )
        subprocess.run(
            [script, "start", name, "--port", str(port), "--nodes", "3"], check=True, stdout=subprocess.DEVNULL
        )
        engine.delete_index()
    return {
        "engine": name,
        "queries requested": n_queries,
        "queries logged": counts.queries,
        "documents requested": judged.n_rows,
        "documents logged": counts.documents,
        "absent": counts.absent_documents,
        "same as undisturbed": same,
        "requests in flight at the kill": len(killing.caught),
        "retries": retries,
        "searches answered": searches.answered,
        "searches with fewer hits": searches.short,
        "searches failed": searches.errors,
        "longest search, s": round(searches.longest, 2),
    }


def judgments(n_queries: int, ids: list[str]) -> QuerySet:
    """Return queries of two words with ten judged documents each."""
    rng = np.random.default_rng(3)
    return QuerySet.from_arrays(
        np.empty((10 * n_queries, 0)),
        rng.integers(0, 3, 10 * n_queries),
        qid=np.repeat([f"q{i}" for i in range(n_queries)], 10),
        doc_id=np.concatenate([rng.choice(ids, 10, replace=False) for _ in range(n_queries)]),
        query_columns={"text": [" ".join(rng.choice(WORDS, 2, replace=False)) for _ in range(n_queries)]},
    )


def log(engine: Engine, judged: QuerySet, out: Path, killing: Killing | None = None) -> tuple[LogCounts, int]:
    """Log, with a kill after some queries; return the counts and the number of retries."""
    done = 0

    def advance(step: int) -> None:
        nonlocal done
        done += step
        if killing is not None and done == killing.after:
            killing.thread.start()
            log_progress(f"kill a node after {done} queries")

    pool = RetryingPool(WORKERS)
    counts = ResumableLog(out, judged, FeatureLogger(engine, candidates="judged", timeout=20.0)).write(pool, advance)
    if killing is not None:
        killing.thread.join(timeout=1.0)
    return counts, pool.retries


def identical(killed: QuerySet, judged: QuerySet, undisturbed: QuerySet) -> bool:
    """Return whether both logs have all judged documents once and equal values.

    Values are equal to the last bit: no document was ever deleted, so all replicas have the same statistics.
    """
    complete = all(
        np.array_equal(logged.qid, judged.qid) and np.array_equal(logged.doc_id, judged.doc_id)
        for logged in (killed, undisturbed)
    )
    return bool(complete and np.array_equal(killed.X, undisturbed.X, equal_nan=True))


def wait_for_replicas(engine: LuceneEngine) -> None:
    """Wait until every shard has its replica."""
    deadline = time.monotonic() + 120
    while engine.health().status != "green":
        if time.monotonic() > deadline:
            raise TimeoutError("the shards have no replicas after 120 s")
        time.sleep(0.2)
