"""A node of three is killed while features are logged and searches run: the log is complete, searches go on.

The log under fire must equal a log in peace, document by document.
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
from kinrank.checks.engine_sample import FEATURES, WORDS, sample_documents
from kinrank.engines import Engine, FeatureSet, connect
from kinrank.engines.logger import FeatureLogger, LogCounts
from kinrank.engines.lucene import LuceneEngine
from kinrank.engines.resumable_log import ResumableLog
from kinrank.engines.retry import RetryingPool
from kinrank.errors import EngineError
from scripts.engine_servers import SERVERS, Node

OPTIONS = {"engine": ("elasticsearch", "opensearch")}
# The small world of the checks, without its vectors: how those are kept differs between the engines.
TEXTS = "\n".join(line for line in FEATURES.splitlines() if "embedding" not in line)
KINDS = {"title": "text", "body": "text", "votes": "integer", "price": "float", "sold": "boolean"}
SETTINGS = {
    "settings": {"index": {"number_of_shards": 3, "number_of_replicas": 1}},
    "mappings": {"properties": {name: {"type": kind} for name, kind in KINDS.items()}},
}


@dataclass
class Searches:
    """Searches sent without a pause, and what became of them."""

    engine: LuceneEngine
    answered: int = 0
    short: int = 0
    errors: list[str] = field(default_factory=list)
    longest: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Search until told to stop."""
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
    """Kills a process while requests of a log are under way.

    Parameters
    ----------
    engine
        Whose requests; they are counted from now on.
    pid
        The process.
    after
        How many queries are logged before.
    """

    def __init__(self, engine: Engine, pid: int, after: int) -> None:
        self.pid = pid
        self.after = after
        self.under_way: set[object] = set()
        self.caught: set[object] = set()
        # A thread of its own: the log goes on as if nothing had been asked of it.
        self.thread = threading.Thread(target=self._kill, daemon=True)
        ask = engine.log

        def counted(*words: object, **options: object) -> object:
            request = object()
            self.under_way.add(request)
            try:
                return ask(*words, **options)  # type: ignore[arg-type]
            finally:
                self.under_way.discard(request)

        engine.log = counted  # type: ignore[method-assign,assignment]

    def _kill(self) -> None:
        while len(self.under_way) < WORKERS:
            time.sleep(0.0005)
        before = self.under_way.copy()
        os.kill(self.pid, signal.SIGKILL)
        self.caught = before & self.under_way


def run(engine: str) -> dict[str, object]:
    """Three nodes of our own, one of them killed."""
    with running(engine, nodes=3) as address:
        return survive(address, engine, PORTS[engine], n_queries=1000)


def survive(address: str, name: str, port: int, n_queries: int) -> dict[str, object]:
    """Log and search while node 2 is killed; the node is back afterwards."""
    words = [str(CHECKOUT / "scripts" / "engine")]
    features = FeatureSet.parse(TEXTS)
    with (
        connect(f"{address}/faults-{uuid.uuid4().hex}", features, timeout=20.0) as engine,
        tempfile.TemporaryDirectory() as work,
    ):
        assert isinstance(engine, LuceneEngine)
        documents = [
            (doc_id, {name: fields[name] for name in KINDS if name in fields})
            for doc_id, fields in sample_documents(300)
        ]
        engine.index(documents, settings=SETTINGS)
        wait_for_copies(engine)
        judged = judgments(n_queries, [doc_id for doc_id, _ in documents])
        log(engine, judged, Path(work) / "peace.parquet")
        node = Node(SERVERS[name], port, 2).pid
        assert node is not None, "node 2 is not one of scripts/engine"
        killing = Killing(engine, node, after=n_queries // 3)
        searches = Searches(engine)
        searcher = threading.Thread(target=searches.run)
        searcher.start()
        try:
            fire, repeated = log(engine, judged, Path(work) / "fire.parquet", killing)
        finally:
            searches.stop.set()
            searcher.join()
        log_progress(f"log under fire: {fire}")
        same = identical(read_parquet(Path(work) / "fire.parquet"), judged, read_parquet(Path(work) / "peace.parquet"))
        subprocess.run(
            [*words, "start", name, "--port", str(port), "--nodes", "3"], check=True, stdout=subprocess.DEVNULL
        )
        engine.delete_index()
    return {
        "engine": name,
        "queries asked": n_queries,
        "queries logged": fire.queries,
        "documents asked": judged.n_rows,
        "documents logged": fire.documents,
        "absent": fire.absent_documents,
        "same as in peace": same,
        "requests under way at the kill": len(killing.caught),
        "requests repeated": repeated,
        "searches answered": searches.answered,
        "searches with fewer hits": searches.short,
        "searches failed": searches.errors,
        "longest search, s": round(searches.longest, 2),
    }


def judgments(n_queries: int, ids: list[str]) -> QuerySet:
    """Queries of two words, ten documents each."""
    random = np.random.default_rng(3)
    return QuerySet.from_arrays(
        np.empty((10 * n_queries, 0)),
        random.integers(0, 3, 10 * n_queries),
        qid=np.repeat([f"q{i}" for i in range(n_queries)], 10),
        doc_id=np.concatenate([random.choice(ids, 10, replace=False) for _ in range(n_queries)]),
        query_columns={"text": [" ".join(random.choice(WORDS, 2, replace=False)) for _ in range(n_queries)]},
    )


def log(engine: Engine, judged: QuerySet, out: Path, killing: Killing | None = None) -> tuple[LogCounts, int]:
    """Log, under fire after some queries; how many requests were repeated."""
    done = 0

    def advance(step: int) -> None:
        nonlocal done
        done += step
        if killing is not None and done == killing.after:
            killing.thread.start()
            log_progress(f"a node is killed after {done} queries")

    pool = RetryingPool(WORKERS)
    counts = ResumableLog(out, judged, FeatureLogger(engine, timeout=20.0)).write(pool, advance)
    if killing is not None:
        killing.thread.join(timeout=1.0)
    return counts, pool.retries


def identical(fire: QuerySet, judged: QuerySet, peace: QuerySet) -> bool:
    """Nothing lost, nothing doubled, every value as it was logged in peace.

    To the last bit: no document was ever deleted, so all copies of a shard have the same statistics.
    """
    whole = all(
        np.array_equal(logged.qid, judged.qid) and np.array_equal(logged.doc_id, judged.doc_id)
        for logged in (fire, peace)
    )
    return bool(whole and np.array_equal(fire.X, peace.X, equal_nan=True))


def wait_for_copies(engine: LuceneEngine) -> None:
    """Until every shard has its copy."""
    deadline = time.monotonic() + 120
    while engine.health().status != "green":
        if time.monotonic() > deadline:
            raise TimeoutError("the shards have no copies yet")
        time.sleep(0.2)
