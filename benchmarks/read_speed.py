"""read_letor reads MQ2007 several times faster than scikit-learn's load_svmlight_file, and keeps the document ids.

Both read the same files: all five parts as one plain text, and the same packed with gzip. scikit-learn gives a sparse
matrix without document ids; read_letor a dense one, grouped by query, with them.
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
    """Seconds of both readers on plain and packed text, and their ratio."""
    with tempfile.TemporaryDirectory() as folder:
        files = _write(Path(folder))
        figures: dict[str, object] = {"repeats": REPEATS, "text_mb": round(files["plain"].stat().st_size / 1e6, 1)}
        queries = read_letor(files["plain"])
        X, y, _ = load_svmlight_file(str(files["plain"]), query_id=True, dtype=np.float32)
        figures["rows"] = queries.n_rows
        figures["same_values"] = bool(np.array_equal(queries.X, X.toarray()) and np.array_equal(queries.grades, y))
        figures["document_ids_kept"] = int(np.count_nonzero(queries.doc_id != ""))
        for form, path in files.items():
            seconds = medians(interleaved({"kinrank": _ours(path), "sklearn": _theirs(path)}, REPEATS))
            for reader, value in seconds.items():
                figures[f"{form}_{reader}_s"] = round(value, 3)
            figures[f"{form}_times_faster"] = round(seconds["sklearn"] / seconds["kinrank"], 2)
            log_progress(f"{form}: kinrank {seconds['kinrank']:.3f} s, scikit-learn {seconds['sklearn']:.3f} s")
    return figures


def _write(folder: Path) -> dict[str, Path]:
    parts = sorted((data_dir() / "letor" / "MQ2007").glob("S*.txt.xz"))
    text = b"".join(lzma.decompress(part.read_bytes()) for part in parts)
    files = {"plain": folder / "MQ2007.txt", "gzip": folder / "MQ2007.txt.gz"}
    files["plain"].write_bytes(text)
    files["gzip"].write_bytes(gzip.compress(text))
    return files


def _ours(path: Path):  # type: ignore[no-untyped-def]
    return lambda: read_letor(path)


def _theirs(path: Path):  # type: ignore[no-untyped-def]
    return lambda: load_svmlight_file(str(path), query_id=True, dtype=np.float32)
