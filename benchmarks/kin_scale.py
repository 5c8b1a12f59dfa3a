"""What KinRanker loses by cells and by trees from a sample, and what training on 10^6 queries from disk costs.

Four parts (``--part``):

- ``msrd``: MSRD's test queries, trained on its training and validation queries by ``kinrank train --workers 2``, with
  trees from 1,000 queries to all of them; and by plain `fit`, which keeps every query.
- ``world``: the same on 100,000 generated queries with 10 documents and 10 features.
- ``million``: ``kinrank train --workers 2`` with its defaults on 10^6 generated queries with 40 documents and 46
  features, 7.5 GB of Parquet: seconds and peak memory.
- ``memory``: ``kinrank train --workers 2`` with memory and without on 100,000 generated queries with texts and 20
  candidates, and `fit` with the same cells and sample for the trees.

Gains are compared with plain `fit` on the same test queries. The generated queries want different weights, by ten
intents, and have interactions between features that only trees can learn. Takes about an hour on two idle cores.
``--size small`` takes 5,000 of MSRD's training queries, and 20,000 generated ones (10,000 with memory) in place of
100,000 and of 10^6.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import log_progress, msrd
from kinrank import KinRanker, QuerySet, load, write_parquet
from kinrank.arrays import Float64
from kinrank.measure import NDCG, compare_paired
from kinrank.rankers import Ranker

OPTIONS = {"part": ("all", "msrd", "world", "million", "memory"), "size": ("full", "small")}
INTENTS = 10
QUERIES_PER_FILE = 10_000
MEASURE = NDCG @ 10
SAMPLES = (1_000, 3_000, 10_000, 20_000, 50_000)
MOVIES = {"group_column": "movie"}
REFERENCE = {"reference": "bm25_all"}


def run(part: str = "all", size: str = "full") -> dict[str, object]:
    """Return the figures of one part, or of all."""
    full = size == "full"
    parts = {
        "msrd": lambda: measure_msrd(None if full else 5_000),
        "world": lambda: measure_world(100_000 if full else 20_000),
        "million": lambda: measure_command(1_000_000 if full else 20_000),
        "memory": lambda: measure_memory(100_000 if full else 10_000),
    }
    return {name: measure() for name, measure in parts.items() if part in (name, "all")}


def measure_msrd(n_queries: int | None) -> dict[str, object]:
    """Compare plain `fit` with the command on MSRD."""
    movies = msrd()
    train, test = QuerySet.concat([movies["train"], movies["vali"]])[:n_queries], movies["test"]
    samples = [sample for sample in SAMPLES if sample < len(train)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_parquet(train, folder / "train.parquet")
        return {"queries": len(train)} | curve(
            folder, folder / "train.parquet", train, test, samples, MOVIES, REFERENCE
        )


def measure_world(n_queries: int) -> dict[str, object]:
    """Compare plain `fit` with the command on generated queries."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        generate(folder / "train", n_queries, 10, 10)
        generate(folder / "test", 10_000, 10, 10, first=n_queries)
        train, test = (QuerySet.from_table(pq.read_table(folder / name)) for name in ("train", "test"))
        samples = [sample for sample in SAMPLES if sample < n_queries]
        return {"queries": n_queries} | curve(folder, folder / "train", train, test, samples, {}, {})


def curve(
    folder: Path,
    data: Path,
    train: QuerySet,
    test: QuerySet,
    samples: list[int],
    params: dict[str, str],
    settings: dict[str, str],
) -> dict[str, object]:
    """Compare plain `fit` with the command, with trees from samples and from all queries."""
    start = time.perf_counter()
    exact = _values("fit", KinRanker(**params, settings=settings).fit(train), test)
    figures: dict[str, object] = {
        "fit": round(float(exact.mean()), 4),
        "fit, seconds": round(time.perf_counter() - start),
    }
    words = [f"{name}={value}" for name, value in {**params, **settings}.items()]
    for sample in [*samples, len(train)]:
        cost = command(data, folder / "model", f"tree_queries={sample}", *words)
        found = _compared(_values(f"trees from {sample:,}", load(folder / "model"), test), exact, test) | cost
        figures[f"trees from {sample:,}"] = found
        log_progress(f"trees from {sample:,}: {found}")
    return figures


def measure_command(n_queries: int) -> dict[str, object]:
    """Return the cost of the command with its defaults."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        generate(folder / "train", n_queries, 40, 46)
        size = sum(file.stat().st_size for file in (folder / "train").rglob("*.*"))
        found = command(folder / "train", folder / "model")
        test = generate_part(n_queries // QUERIES_PER_FILE, 2_000, 40, 46)
        quality = _values("model", load(folder / "model"), QuerySet.from_table(test)).mean()
        return {"queries": n_queries, "data GB": round(size / 1e9, 1), "NDCG@10": round(float(quality), 4)} | found


def measure_memory(n_queries: int) -> dict[str, object]:
    """Compare the command with memory and without, and both with `fit` of the same settings."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        generate(folder / "train", n_queries, 20, 10, part=generate_asked)
        test = QuerySet.from_table(generate_asked(n_queries // QUERIES_PER_FILE, 5_000, 20, 10))
        figures: dict[str, object] = {"queries": n_queries}
        for name, setting in (("without memory", "memory=False"), ("with memory", "memory=True")):
            cost = command(folder / "train", folder / "model", setting)
            ranker = load(folder / "model")
            figures[name] = {"NDCG@10": round(float(_values(name, ranker, test).mean()), 4)} | cost
            log_progress(f"{name}: {figures[name]}")
        sizes = {name: ranker.settings[name] for name in ("n_cells", "tree_queries")}
        train = QuerySet.from_table(pq.read_table(folder / "train"))
        start = time.perf_counter()
        fitted = _values("fit with memory", KinRanker(settings=sizes).fit(train), test)
        seconds = round(time.perf_counter() - start)
        figures["fit with memory"] = {"NDCG@10": round(float(fitted.mean()), 4), "seconds": seconds}
        return figures


def command(data: Path, model: Path, *settings: str, workers: int = 2) -> dict[str, object]:
    """Run ``kinrank train`` and return its seconds, those of its processes, and peak memory."""
    shutil.rmtree(model, ignore_errors=True)
    words = [word for setting in settings for word in ("--set", setting)]
    kinrank = Path(sys.executable).with_name("kinrank")
    line = [str(kinrank), "train", str(data), "--model", str(model), "--workers", str(workers)]
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen([*line, *words], stderr=subprocess.PIPE, text=True)
    memory = PeakMemory(process.pid)
    _, messages = process.communicate()
    memory.stop()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(messages)
    log_progress(messages.strip())
    return {
        "seconds": round(time.perf_counter() - start),
        "CPU seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime),
        "peak GB of all processes": round(memory.together / 1e6, 2),
        "peak GB of one process": round(memory.single / 1e6, 2),
    }


class PeakMemory:
    """Watches the resident memory of a process and its children, in kilobytes.

    Attributes
    ----------
    together
        The highest sum seen, every half second.
    single
        The highest peak of one process.
    """

    def __init__(self, pid: int) -> None:
        self.pid, self.together, self.single = pid, 0, 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.5):
            now = [_memory(pid) for pid in _family(self.pid)]
            self.together = max(self.together, sum(resident for resident, _ in now))
            self.single = max([self.single, *(peak for _, peak in now)])


def _family(pid: int) -> list[int]:
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                parents[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    family = [pid]
    for member in family:
        family += [child for child, parent in parents.items() if parent == member]
    return family


def _memory(pid: int) -> tuple[int, int]:
    """Return the resident memory of a process and its peak, in kilobytes."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    found = {name: value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value.strip()}
    return int(found.get("VmRSS", 0)), int(found.get("VmHWM", 0))


def _values(name: str, ranker: Ranker, test: QuerySet) -> Float64:
    values = MEASURE.per_query(ranker.predict(test), test.grades, test.offsets)
    log_progress(f"{name}: {np.nanmean(values):.4f} {ranker.remarks()}")
    return np.nan_to_num(values)


def _compared(values: Float64, exact: Float64, test: QuerySet) -> dict[str, object]:
    found = compare_paired(values, exact, groups=test.query_columns.get("movie"))
    return {
        "NDCG@10": round(float(values.mean()), 4),
        "minus fit": round(float(values.mean() - exact.mean()), 4),
        "interval": [round(float(bound), 4) for bound in found.interval],
        "p": float(f"{found.p:.2g}"),
    }


def generate(
    folder: Path,
    n_queries: int,
    n_docs: int,
    n_features: int,
    first: int = 0,
    part: Callable[[int, int, int, int], pa.Table] | None = None,
) -> None:
    """Write generated queries as Parquet files of 10,000 queries."""
    folder.mkdir()
    for number in range(first // QUERIES_PER_FILE, (first + n_queries) // QUERIES_PER_FILE):
        table = (part or generate_part)(number, QUERIES_PER_FILE, n_docs, n_features)
        file = folder / f"{number:04}.parquet"
        pq.write_table(table, file, row_group_size=200_000, compression="none", use_dictionary=False)


def generate_part(number: int, n_queries: int, n_docs: int, n_features: int) -> pa.Table:
    """Return queries of ten intents: weights by intent, and two interactions that all share.

    The mean of a query's features reveals its intent.
    """
    shared = np.random.default_rng(0)
    weights = shared.standard_normal((INTENTS, n_features)).astype(np.float32)
    means = 0.5 * shared.standard_normal((INTENTS, n_features)).astype(np.float32)
    rng = np.random.default_rng([1, number])
    rows = n_queries * n_docs
    intent = np.repeat(rng.integers(INTENTS, size=n_queries), n_docs)
    X = rng.standard_normal((n_features, rows), dtype=np.float32)  # by column, as in Parquet
    score = np.einsum("fr,rf->r", X, weights[intent]) / n_features**0.5
    score += 0.7 * X[0] * X[1] + 0.7 * np.abs(X[2]) + rng.standard_normal(rows, dtype=np.float32)
    y = np.digitize(score, [1.0, 2.0, 3.0]).astype(np.float32)
    X += means.T[:, intent]
    qid = np.repeat(np.arange(n_queries) + number * QUERIES_PER_FILE, n_docs)
    names = ["qid", "y", *(f"f{column}" for column in range(1, n_features + 1))]
    return pa.table([pa.array(qid), pa.array(y), *map(pa.array, X)], names=names)


THINGS, DOCS_OF_THING, EXTRA_WORDS = 5_000, 8, 40


def generate_asked(number: int, n_queries: int, n_docs: int, n_features: int) -> pa.Table:
    """Return queries for 5,000 things, in other words each time; who asked for a thing chose the same of its documents.

    Six of the candidates are of the thing, and the features tell half of what makes a candidate good.
    """
    shared = np.random.default_rng(0)
    letters = np.array(list("abcdefghiklmnoprstuvw"))
    words = np.array(["".join(shared.choice(letters, size)) for size in shared.integers(4, 9, 3_000)])
    name = shared.integers(EXTRA_WORDS, len(words), (THINGS, 2))
    appeal = shared.standard_normal((THINGS, DOCS_OF_THING)).astype(np.float32)
    weights = shared.standard_normal(n_features).astype(np.float32) / n_features**0.5
    rng = np.random.default_rng([2, number])
    thing = (THINGS * rng.random(n_queries) ** 2).astype(np.int64)
    spoken = np.char.add(np.char.add(words[name[thing, 0]], " "), words[name[thing, 1]])
    extra = np.char.add(" ", words[rng.integers(0, EXTRA_WORDS, n_queries)])
    text = np.char.add(spoken, np.where(rng.random(n_queries) < 0.8, extra, ""))
    own = np.argsort(rng.random((n_queries, DOCS_OF_THING)), axis=1)[:, :6]
    others = rng.integers(0, THINGS * DOCS_OF_THING, (n_queries, n_docs - 6))
    documents = np.hstack([thing[:, None] * DOCS_OF_THING + own, others])
    X = rng.standard_normal((n_features, n_queries * n_docs), dtype=np.float32)
    liked = np.hstack([appeal[thing[:, None], own], np.zeros(others.shape, dtype=np.float32)]).ravel()
    score = np.einsum("fr,f->r", X, weights) + liked + 0.5 * rng.standard_normal(len(liked), dtype=np.float32)
    y = np.digitize(score, [1.0, 2.0]).astype(np.float32)
    qid = np.repeat(np.arange(n_queries) + number * QUERIES_PER_FILE, n_docs)
    doc_id = np.char.add("d", documents.ravel().astype(str))
    names = ["qid", "y", "text", "doc_id", *(f"f{column}" for column in range(1, n_features + 1))]
    columns = [qid, y, np.repeat(text, n_docs), doc_id, *X]
    return pa.table([pa.array(column) for column in columns], names=names)
