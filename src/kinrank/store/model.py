"""Read and write model folders.

Settings are JSON: plain values as they are, registered classes by name and settings.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank import folder
from kinrank.arrays import State
from kinrank.data.hashes import IdHashes
from kinrank.data.queryset import QuerySet
from kinrank.errors import DamagedFolderError, ParameterError, StoreError
from kinrank.registry import Registry

KIND = "model"
_PART = "$part"
_LEARNED_FROM = "learned_from"
_OWN = folder.MANIFEST, "pt_meta.json"  # by the second, PyTerrier knows a model; see kinrank.pyterrier

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
    unknown = [name for name in sorted(os.listdir(path)) if name not in _OWN and not folder.holds_arrays(name)]
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


# --- settings as JSON, and nested states ------------------------------------------------------------------------------


def encode(value: Any, registries: Iterable[Registry]) -> Any:
    """Return a setting as JSON values.

    Examples
    --------
    >>> from kinrank.learn import LEARNERS
    >>> from kinrank.learn.rankrls import RankRLS
    >>> encode({"learner": RankRLS(penalty=0.1)}, [LEARNERS])["learner"]["$part"]
    'learner'
    """
    known = list(registries)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(key): encode(entry, known) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [encode(entry, known) for entry in value]
    if hasattr(value, "get_params"):
        for registry in known:
            try:
                name = registry.name_of(type(value))
            except ParameterError:
                continue
            params = encode(value.get_params(deep=False), known)
            return {_PART: registry.family, "name": name, "params": params}
    raise StoreError(
        f"a setting of type {type(value).__name__} cannot be saved: use numbers, text, lists, dicts or "
        "registered classes"
    )


def decode(value: Any, registries: Iterable[Registry]) -> Any:
    """Return the setting that `encode` was given. Only registered classes are created."""
    known = list(registries)
    if isinstance(value, list):
        return [decode(entry, known) for entry in value]
    if isinstance(value, dict) and _PART in value:
        for registry in known:
            if registry.family == value[_PART]:
                return registry[value["name"]](**decode(value["params"], known))
        raise StoreError(f"the model has a setting of the unknown family {value[_PART]!r}: upgrade kinrank")
    if isinstance(value, dict):
        return {key: decode(entry, known) for key, entry in value.items()}
    return value


def nest(**parts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Combine several states into one, each under its name.

    Examples
    --------
    >>> nest(learner={"coef": 1}, prepare={"fill": 2})
    {'learner.coef': 1, 'prepare.fill': 2}
    """
    return {f"{part}.{name}": array for part, state in parts.items() for name, array in state.items()}


def unnest(state: Mapping[str, NDArray[Any]], part: str) -> dict[str, NDArray[Any]]:
    """Return the state of one part of a nested state.

    Examples
    --------
    >>> unnest({"learner.coef": 1, "prepare.fill": 2}, "learner")
    {'coef': 1}
    """
    prefix = f"{part}."
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
