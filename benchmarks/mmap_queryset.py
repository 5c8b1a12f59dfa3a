"""A QuerySet of 10^7 rows x 46 features opens from disk in under a second and is sliced in constant memory.

`write_folder` writes it block by block to a temporary folder (about 2 GB). Private memory (RssAnon) excludes mapped
pages, which belong to the page cache of the system.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.common import log_progress, memory_mb
from kinrank import QuerySet
from kinrank.data.queryset import write_folder

N_ROWS, N_FEATURES, DOCS = 10_000_000, 46, 100
N_BLOCKS = 100
N_SLICES, QUERIES_PER_SLICE = 1_000, 10


def run() -> dict[str, object]:
    """Return the seconds to write and to open, and the memory to write and to slice."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "judged"
        before = memory_mb("RssAnon")
        start = time.perf_counter()
        write_folder(_blocks(), path)
        written = time.perf_counter() - start
        peak = memory_mb("VmHWM")
        size = sum(file.stat().st_size for file in path.rglob("*.npy"))
        log_progress(f"wrote {size / 1e9:.2f} GB in {written:.1f} s")

        start = time.perf_counter()
        queries = QuerySet.open(path)
        opened = time.perf_counter() - start
        _slice(queries, 10, seed=1)
        at_start = memory_mb("RssAnon")
        start = time.perf_counter()
        checksum = _slice(queries, N_SLICES, seed=2)
        sliced = time.perf_counter() - start
        growth = memory_mb("RssAnon") - at_start
    return {
        "rows": N_ROWS,
        "features": N_FEATURES,
        "queries": len(queries),
        "folder_gb": round(size / 1e9, 2),
        "write_s": round(written, 1),
        "write_peak_rss_mb": round(peak, 1),
        "rss_anon_before_mb": round(before, 1),
        "open_s": round(opened, 4),
        "slices": N_SLICES,
        "us_per_slice": round(1e6 * sliced / N_SLICES, 1),
        "rss_anon_growth_mb": round(growth, 2),
        "checksum_ok": checksum,
    }


def _blocks() -> Iterator[QuerySet]:
    """Yield queries of 100 candidates; the first feature of a row is its number, to check slices."""
    rng = np.random.default_rng(0)
    rows = N_ROWS // N_BLOCKS
    X = rng.random((rows, N_FEATURES), dtype=np.float32)
    y = rng.integers(0, 3, rows).astype(np.float32)
    for block in range(N_BLOCKS):
        row = np.arange(block * rows, (block + 1) * rows)
        X[:, 0] = row
        yield QuerySet.from_arrays(X, y, qid=row // DOCS)


def _slice(queries: QuerySet, times: int, seed: int) -> bool:
    """Read every value of slices at random positions and return whether their rows were correct."""
    right = True
    for start in np.random.default_rng(seed).integers(0, len(queries) - QUERIES_PER_SLICE, times):
        part = queries[start : start + QUERIES_PER_SLICE]
        right &= part.X.shape == (QUERIES_PER_SLICE * DOCS, N_FEATURES) and float(part.X[0, 0]) == start * DOCS
        right &= bool(np.isfinite(part.X).all()) and part.qid[0] == start
    return bool(right)
