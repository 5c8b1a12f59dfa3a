"""read_letor reads MQ2007 faster than scikit-learn's load_svmlight_file, and keeps the document ids.

Both read the five parts of MQ2007 as one file, plain and compressed with gzip. scikit-learn returns a sparse matrix
without document ids; read_letor returns a dense matrix, grouped by query, with document ids.
"""

from __future__ import annotations

import gzip
import lzma
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from benchmarks.common import data_dir, interleaved, log_progress, medians
from kinrank import read_letor

REPEATS = 5


def run() -> dict[str, object]:
    """Return the seconds of both readers on plain and compressed text, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        files = _write(Path(folder))
        figures: dict[str, object] = {"repeats": REPEATS, "text_mb": round(files["plain"].stat().st_size / 1e6, 1)}
        queries = read_letor(files["plain"])
        X, y, _ = load_svmlight_file(str(files["plain"]), query_id=True, dtype=np.float32)
        figures["rows"] = queries.n_rows
        figures["same_values"] = bool(np.array_equal(queries.X, X.toarray()) and np.array_equal(queries.grades, y))
        figures["document_ids_kept"] = int(np.count_nonzero(queries.doc_id != ""))
        for kind, path in files.items():
            seconds = medians(interleaved({"kinrank": _letor_reader(path), "sklearn": _svmlight_reader(path)}, REPEATS))
            for reader, value in seconds.items():
                figures[f"{kind}_{reader}_s"] = round(value, 3)
            figures[f"{kind}_times_faster"] = round(seconds["sklearn"] / seconds["kinrank"], 2)
            log_progress(f"{kind}: kinrank {seconds['kinrank']:.3f} s, scikit-learn {seconds['sklearn']:.3f} s")
    return figures


def _write(folder: Path) -> dict[str, Path]:
    parts = sorted((data_dir() / "letor" / "MQ2007").glob("S*.txt.xz"))
    text = b"".join(lzma.decompress(part.read_bytes()) for part in parts)
    files = {"plain": folder / "MQ2007.txt", "gzip": folder / "MQ2007.txt.gz"}
    files["plain"].write_bytes(text)
    files["gzip"].write_bytes(gzip.compress(text))
    return files


def _letor_reader(path: Path):  # type: ignore[no-untyped-def]
    return lambda: read_letor(path)


def _svmlight_reader(path: Path):  # type: ignore[no-untyped-def]
    return lambda: load_svmlight_file(str(path), query_id=True, dtype=np.float32)
