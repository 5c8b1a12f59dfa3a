"""Read and write model folders."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from kinrank import folder
from kinrank.arrays import State
from kinrank.data.hashes import IdHashes
from kinrank.data.queryset import QuerySet
from kinrank.errors import DamagedFolderError
from kinrank.store.params import nest, unnest

KIND = "model"
_LEARNED_FROM = "learned_from"
_ARTIFACT = "pt_meta.json"  # what PyTerrier knows a model by, see kinrank.pyterrier

Examples = tuple[QuerySet, NDArray[Any]]
"""Queries, and the scores that the model gave to their candidates when it was written."""


@dataclass(frozen=True)
class ModelRecord:
    """A fitted ranker as stored."""

    ranker: str
    """The registered name of its class."""
    params: dict[str, Any]
    """Its settings, encoded by `kinrank.store.encode`."""
    feature_names: tuple[str, ...]
    """The features it was fitted with, in order."""
    version: str
    """The version of kinrank that wrote it."""
    arrays: dict[str, NDArray[Any]]
    """The learned arrays."""
    learned_from: IdHashes | None = None
    """Hashes of the ids of the training queries (`kinrank.data.hashes.hash_ids`), or None."""
    judgments_through: int | None = None
    """The revision of the live judgments that it has learned, or None; see `kinrank.serve._judgments`."""
    names: State = field(default_factory=dict)
    """Texts of judged queries and titles of documents, for explanations; empty in models of version 0.1."""
    path: Path | None = None
    """The folder that it was read from."""


def write_model(path: str | os.PathLike[str], record: ModelRecord, examples: Examples | None = None) -> None:
    """Write a model folder atomically, replacing an existing model."""
    meta: dict[str, Any] = {
        "ranker": record.ranker,
        "params": record.params,
        "feature_names": list(record.feature_names),
        "version": record.version,
    }
    if record.judgments_through is not None:
        meta["judgments_through"] = record.judgments_through
    stored = nest(examples=_arrays_of(examples), names=record.names)
    if record.learned_from is not None:
        stored[_LEARNED_FROM] = record.learned_from
    folder.write(path, KIND, meta, {**record.arrays, **stored})


def ranker_name(path: str | os.PathLike[str]) -> str:
    """Return the registered name of the ranker in a model folder, without reading the model."""
    return str(folder.read_manifest(Path(path), KIND)["meta"]["ranker"])


def read_model(path: str | os.PathLike[str]) -> ModelRecord:
    """Read a model folder and verify its checksums; arrays are memory-mapped. Files of others are refused."""
    return read_model_and_examples(path)[0]


def read_model_and_examples(path: str | os.PathLike[str], *, copy: bool = False) -> tuple[ModelRecord, Examples | None]:
    """Read a model folder and the examples stored in it, or None if there are none. See `kinrank.folder.read`."""
    meta, arrays = folder.read(path, KIND, copy=copy)
    known = {folder.MANIFEST, _ARTIFACT, *map(folder.file_name, arrays)}
    unknown = sorted(set(os.listdir(path)) - known)
    if unknown:
        raise DamagedFolderError(
            f"{os.fspath(path)} has {unknown[0]!r}, which kinrank did not write: delete it, or write the model again"
        )
    hashes = arrays.pop(_LEARNED_FROM, None)
    examples, names = unnest(arrays, "examples"), unnest(arrays, "names")
    learned = {name: array for name, array in arrays.items() if not name.startswith(("examples.", "names."))}
    try:
        record = ModelRecord(
            meta["ranker"],
            meta["params"],
            tuple(meta["feature_names"]),
            meta["version"],
            learned,
            hashes,
            meta.get("judgments_through"),
            names,
            Path(path),
        )
        return record, _examples_of(examples, record.feature_names)
    except (KeyError, TypeError) as error:
        raise DamagedFolderError(
            f"{os.fspath(path)}: the manifest has no {error}: pass a model folder that kinrank wrote"
        ) from None


def _arrays_of(examples: Examples | None) -> State:
    if examples is None:
        return {}
    queries, scores = examples
    return {**queries.replace(y=None, doc_title=None).get_state(), "scores": scores}


def _examples_of(arrays: State, feature_names: tuple[str, ...]) -> Examples | None:
    return (QuerySet.from_state(arrays, feature_names), arrays["scores"]) if arrays else None
