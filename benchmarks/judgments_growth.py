"""A service with a million live judgments is ready in 10 s, and one more costs it less than 10 ms of CPU.

A KnnRanker with 20 features, fitted on 1,000 queries, and then live judged queries of 8 documents in a SQLite store: a
thousand, and many (``--judgments``). A checkpoint of the many is written as a service does it, from the statistics of
the same queries. Then a service starts in a new process, and judged queries are stored and learned one at a time:

- *ready*: seconds and CPU seconds until the service has learned everything, imports and compilation included.
- *CPU per judgment*: of the whole process, from the request to the model that has learned it; medians of the rest
  after the first 10.
- *rank*: milliseconds to rank 100 candidates at that size.
- *memory*: of the process, and how much of it is private, not shared with other processes that map the checkpoint.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.common import log_progress
from benchmarks.knn_latency import random_queries
from kinrank import KnnRanker, QuerySet
from kinrank.serve import CandidateSet, JudgedQuery, Service, Settings
from kinrank.serve._judgments import Entry, JudgmentRow, checkpoint_folder, open_store

OPTIONS = {"judgments": ("1000000", "100000", "10000")}
FEATURES, DOCUMENTS, FITTED, DIFFERENT, FURTHER = 20, 8, 1_000, 1_000, 60
READY_SECONDS, JUDGMENT_MS = 10.0, 10.0


def run(judgments: str) -> dict[str, object]:
    """Measure a service with a thousand live judgments and one with many."""
    figures: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        fitted = KnnRanker(400, reference=0).fit(random_queries(FITTED, DOCUMENTS, FEATURES, 0))
        fitted = with_text_ids(fitted)
        fitted.save(place / "model", examples=random_queries(20, DOCUMENTS, FEATURES, 1))
        for count in (1_000, int(judgments)):
            address = f"sqlite:///{place}/{count}.db"
            log_progress(f"{count} live judgments: write the store and the checkpoint")
            prepare(fitted, place / "model", address, count)
            command = [sys.executable, "-m", "benchmarks.judgments_growth", str(place / "model"), address, str(count)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            figures[f"{count} live judgments"] = measured = json.loads(done.stdout.splitlines()[-1])
            log_progress(done.stdout.splitlines()[-1])
    held = measured["ready s"] <= READY_SECONDS and measured["CPU ms per judgment"] < JUDGMENT_MS
    return {**figures, "holds": held}


def with_text_ids(ranker: KnnRanker) -> KnnRanker:
    """Return the ranker with its query ids as text."""
    ranker.qid_ = np.array([f"fitted {qid}" for qid in ranker.qid_])
    return ranker


def prepare(fitted: KnnRanker, model: Path, address: str, count: int) -> None:
    """Store judgments and write the checkpoint of a service that has learned them."""
    different = random_queries(DIFFERENT, DOCUMENTS, FEATURES, 2)
    names = tuple(fitted.feature_names_)
    records = [record(query, names) for query in different]
    store, ranker, revision = open_store(address), fitted, 0
    for start in range(0, count, DIFFERENT):
        qid = np.array([f"live {start + i}" for i in range(DIFFERENT)])
        rows = [
            JudgmentRow(each, "", text.replace('"qid":"?"', f'"qid":"{each}"'))
            for each, text in zip(qid.tolist(), records, strict=True)
        ]
        revision = store.append("default", rows)
        ranker = ranker.copy().add(different.replace(qid=qid))
    store.close()
    with Service({"default": model}, settings=Settings(deadline=60.0)) as service:
        version = service.slots["default"].current.fitted  # type: ignore[union-attr]
    folder = Path(checkpoint_folder(address) or "")
    folder.mkdir()
    ranker.save(folder / f"default-{version}-{revision}-{count}", judgments_through=revision)


def record(query: QuerySet, names: tuple[str, ...]) -> str:
    """Return a judged query as it is stored, with ``?`` for its id."""
    candidates = CandidateSet([f"d{i}" for i in range(DOCUMENTS)], query.X, names)
    return Entry("benchmark", JudgedQuery("?", candidates, query.grades.tolist())).dump()


def measure(model: str, address: str, count: int) -> dict[str, float]:
    """Start a service, judge further queries one by one, and return the figures."""
    service = Service({"default": model}, settings=Settings(deadline=60.0, watch_interval=60.0), judgments=address)
    service.start()
    slot = service.slots["default"]
    assert slot.current is not None
    assert slot.current.judgments == count
    ready, ready_cpu = time.perf_counter() - STARTED, time.process_time()
    cpu = []
    for number, query in enumerate(random_queries(FURTHER, DOCUMENTS, FEATURES, 3)):
        candidates = CandidateSet([f"d{i}" for i in range(DOCUMENTS)], query.X)
        start = time.process_time()
        # Half of them are new queries, half replace the judgments of one that is known.
        qid = f"further {number}" if number % 2 else f"live {number}"
        revision = service.judge([JudgedQuery(qid, candidates, query.grades.tolist())])
        while (slot.current.revision or 0) < revision:
            time.sleep(0.001)
        cpu.append(time.process_time() - start)
    asked = random_queries(50, 100, FEATURES, 4)
    rank = []
    for query in asked:
        start = time.perf_counter()
        service.rank(CandidateSet([f"d{i}" for i in range(100)], query.X))
        rank.append(time.perf_counter() - start)
    smaps = Path("/proc/self/smaps_rollup").read_text()
    private = sum(int(line.split()[1]) for line in smaps.splitlines() if line.startswith("Private_Dirty"))
    service.close()
    return {
        "ready s": round(ready, 1),
        "ready CPU s": round(ready_cpu, 1),
        "CPU ms per judgment": round(1000 * statistics.median(cpu[10:]), 2),
        "CPU ms per judgment, p90": round(1000 * float(np.quantile(cpu[10:], 0.9)), 2),
        "rank ms": round(1000 * statistics.median(rank[10:]), 2),
        "memory MB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "of which private MB": round(private / 1024),
    }


if __name__ == "__main__":
    STARTED = time.perf_counter()
    print(json.dumps(measure(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
