"""Read the judged collections from the data folder: ``letor/`` and ``text/``.

The collections are not part of this repository. ``docs/benchmarks.md`` lists them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.data.letor import read_letor
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError

VARIABLE = "KINRANK_DATA"
"""The environment variable that holds the path of the folder."""

LETOR = "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval"
WHERE = {
    "letor/MQ2007": "python -c \"from kinrank.datasets import fetch_letor; fetch_letor('MQ2007')\"",
    "letor/MQ2008": "python -c \"from kinrank.datasets import fetch_letor; fetch_letor('MQ2008')\"",
    "letor/OHSUMED": f"LETOR 3.0, {LETOR}",
    "letor/OHSUMED-25": f"LETOR 2.0, {LETOR}",
    "text/msrd": "python examples/movies/features.py",
    "text/mwmbl": "https://github.com/mwmbl/mwmbl",
}
"""Where each collection comes from: a command that downloads it into ``KINRANK_DATA``, or an address."""

MSRD_FILES = ("text/msrd/features20.npz", "text/msrd/query_vectors.f16.npy")
FOLDS = range(1, 6)
"""Fold numbers start at 1."""

Split = tuple[QuerySet, QuerySet, QuerySet]


def letor_files(collection: str) -> tuple[str, ...]:
    """Return the files of the five parts of a LETOR collection.

    Examples
    --------
    >>> letor_files("MQ2008")[0]
    'letor/MQ2008/S1.txt.xz'
    """
    return tuple(f"letor/{collection}/S{part}.txt.xz" for part in FOLDS)


def text_files(collection: str) -> tuple[str, ...]:
    """Return the feature file of ``mwmbl`` or ``icecat``."""
    return (f"text/{collection}/features.npz",)


@dataclass(frozen=True)
class DataFolder:
    """The folder that holds the collections.

    Attributes
    ----------
    path : Path
        The folder with ``letor/`` and ``text/``.
    """

    path: Path

    @classmethod
    def locate(cls, path: str | None, collections: Iterable[str]) -> DataFolder:
        """Return the folder at `path`, or at the path in ``KINRANK_DATA`` if `path` is None.

        Without `collections` to read no folder is needed.
        """
        needed, named = sorted(collections), path or os.environ.get(VARIABLE)
        if not needed:
            return cls(Path(named or os.devnull))
        if not named:
            raise DataError(
                f"no folder of judged collections given: pass --data FOLDER or set {VARIABLE}. It must have "
                f"{_sources(needed)}"
            )
        if not Path(named).is_dir():
            raise DataError(f"{named}: no such folder; set --data or {VARIABLE} to the folder with letor/ and text/")
        return cls(Path(named))

    def require(self, names: Iterable[str]) -> None:
        """Raise an error that lists every missing file."""
        missing = sorted({name for name in names if not (self.path / name).is_file()})
        if missing:
            raise DataError(
                f"{self.path}: {len(missing)} of the files to read are missing: {', '.join(missing)}. "
                f"Add them, or set --data or {VARIABLE} to another folder. "
                f"How to get them: {_sources({name.rpartition('/')[0] for name in missing})}"
            )

    def checksums(self, names: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of each file, to tell results of different data apart."""
        return {name: _sha256(self.path / name) for name in names}

    def letor_part(self, collection: str, part: int) -> QuerySet:
        """Read part 1..5 of a LETOR collection."""
        return _letor_part(self.path, collection, part)

    def letor_fold(self, collection: str, fold: int) -> Split:
        """Read (train, validation, test) of a fold: S_f to S_f+2, S_f+3 and S_f+4, wrapping around after S5."""
        parts = [self.letor_part(collection, (fold - 1 + step) % 5 + 1) for step in range(5)]
        return QuerySet.concat(parts[:3]), parts[3], parts[4]

    def letor_folds(self, collection: str) -> Iterator[Split]:
        """Read all five folds."""
        return (self.letor_fold(collection, fold) for fold in FOLDS)

    def msrd(self) -> Split:
        """Read MSRD, movie search with 20 features, as (train, validation, test) of its fixed split by movie.

        Query columns: ``words`` (word count), ``movie`` (the group), ``vector`` (embedding of the query text).
        """
        return _msrd(self.path)

    def judged_text(self, collection: str) -> tuple[QuerySet, NDArray[np.int64]]:
        """Read ``mwmbl`` or ``icecat``, and the fold (1..5) of each query."""
        arrays = np.load(self.path / text_files(collection)[0])
        columns = {
            "words": arrays["query_words"],
            "text": arrays["query"],
            "vector": arrays["query_vectors"].astype(np.float32),
        }
        if "intent" in arrays:
            columns["intent"] = arrays["intent"]
        return query_set(arrays, columns), arrays["fold"]


def _sources(collections: Iterable[str]) -> str:
    """Return collections with where each comes from."""
    return "; ".join(
        [*(f"{each} ({WHERE[each]})" for each in sorted(collections) if each in WHERE), "see docs/benchmarks.md"]
    )


@cache
def _letor_part(folder: Path, collection: str, part: int) -> QuerySet:
    return read_letor(folder / letor_files(collection)[part - 1])


@cache
def _msrd(folder: Path) -> Split:
    arrays = np.load(folder / MSRD_FILES[0])
    columns = {
        "words": arrays["query_words"],
        "movie": arrays["movie"],
        "vector": np.load(folder / MSRD_FILES[1]).astype(np.float32),
    }
    queries = query_set(arrays, columns)
    train, vali, test = (queries[arrays["split"] == part] for part in ("train", "vali", "test"))
    return train, vali, test


def query_set(arrays: Any, columns: dict[str, NDArray[Any]]) -> QuerySet:
    """Return the queries of a file of arrays, with columns of queries."""
    return QuerySet.from_arrays(
        arrays["X"],
        arrays["y"],
        qid=np.repeat(arrays["qid"], np.diff(arrays["offsets"])),
        doc_id=arrays["doc_id"],
        feature_names=arrays["names"].tolist(),
        query_columns=columns,
    )


@cache
def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
