"""The folder of judged collections that the figures are measured on: ``letor/`` and ``text/``.

The collections are not ours to ship. ``docs/reproduction.md`` says which files each figure reads.
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

SETTING = "KINRANK_DATA"
"""The environment variable that names the folder."""

MSRD_FILES = ("text/msrd/features20.npz", "text/msrd/query_vectors.f16.npy")
FOLDS = range(1, 6)
"""Folds are counted from 1."""

Split = tuple[QuerySet, QuerySet, QuerySet]


def letor_files(collection: str) -> tuple[str, ...]:
    """The five parts of a LETOR collection.

    Examples
    --------
    >>> letor_files("MQ2008")[0]
    'letor/MQ2008/S1.txt.xz'
    """
    return tuple(f"letor/{collection}/S{part}.txt.xz" for part in FOLDS)


def text_files(collection: str) -> tuple[str, ...]:
    """The ready features of ``mwmbl`` or ``icecat``."""
    return (f"text/{collection}/features.npz",)


@dataclass(frozen=True)
class DataFolder:
    """Where the collections lie.

    Attributes
    ----------
    path : Path
        The folder with ``letor/`` and ``text/``.
    """

    path: Path

    @classmethod
    def found(cls, path: str | None) -> DataFolder:
        """The folder given, or else the one that the environment names."""
        named = path or os.environ.get(SETTING)
        if not named:
            raise DataError(f"where are the judged collections? Give --data FOLDER or set {SETTING}")
        if not Path(named).is_dir():
            raise DataError(f"{named}: no such folder; --data or {SETTING} must name the one with letor/ and text/")
        return cls(Path(named))

    def require(self, names: Iterable[str]) -> None:
        """An error that names every file that is missing."""
        missing = sorted({name for name in names if not (self.path / name).is_file()})
        if missing:
            raise DataError(
                f"{self.path}: {len(missing)} of the files that this reads are missing: {', '.join(missing)}. "
                f"Put them there, or name another folder with --data or {SETTING}"
            )

    def fingerprint(self, names: Iterable[str]) -> dict[str, str]:
        """The SHA-256 of each file: a figure kept from other data must not be taken for one of these."""
        return {name: _sha256(self.path / name) for name in names}

    def letor_part(self, collection: str, part: int) -> QuerySet:
        """Part 1..5 of a LETOR collection."""
        return _letor_part(self.path, collection, part)

    def letor_fold(self, collection: str, fold: int) -> Split:
        """Train, validation and test: fold f trains on S_f, S_f+1, S_f+2 and so on, wrapping after 5."""
        parts = [self.letor_part(collection, (fold - 1 + step) % 5 + 1) for step in range(5)]
        return QuerySet.concat(parts[:3]), parts[3], parts[4]

    def letor_folds(self, collection: str) -> Iterator[Split]:
        """All five."""
        return (self.letor_fold(collection, fold) for fold in FOLDS)

    def msrd(self) -> Split:
        """Movie search: 20 ready features, the fixed split by movie into train, validation and test.

        Query columns: ``words`` (how many), ``movie`` (the group), ``vector`` (the text of the query).
        """
        return _msrd(self.path)

    def judged_text(self, collection: str) -> tuple[QuerySet, NDArray[np.int64]]:
        """The ready features of ``mwmbl`` or ``icecat``, and the fold (1..5) of each query."""
        arrays = np.load(self.path / text_files(collection)[0])
        columns = {
            "words": arrays["query_words"],
            "text": arrays["query"],
            "vector": arrays["query_vectors"].astype(np.float32),
        }
        if "intent" in arrays:
            columns["intent"] = arrays["intent"]
        return _query_set(arrays, columns), arrays["fold"]


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
    queries = _query_set(arrays, columns)
    train, vali, test = (queries[arrays["split"] == part] for part in ("train", "vali", "test"))
    return train, vali, test


def _query_set(arrays: Any, columns: dict[str, NDArray[Any]]) -> QuerySet:
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
