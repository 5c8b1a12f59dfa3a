"""What a model folder says beside its arrays."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from kinrank import folder
from kinrank.errors import DamagedFolderError

KIND = "model"


@dataclass(frozen=True)
class ModelRecord:
    """A fitted ranker as plain data.

    Attributes
    ----------
    ranker
        The name its class is registered under.
    params
        Its settings, encoded by `kinrank.store.encode`.
    feature_names
        The features it was fitted on, in order.
    version
        The kinrank that wrote it.
    arrays
        What it learnt.
    """

    ranker: str
    params: dict[str, Any]
    feature_names: tuple[str, ...]
    version: str
    arrays: dict[str, NDArray[Any]]


def write_model(path: str | os.PathLike[str], record: ModelRecord) -> None:
    """Write a model folder atomically; a model already there is replaced."""
    meta = {
        "ranker": record.ranker,
        "params": record.params,
        "feature_names": list(record.feature_names),
        "version": record.version,
    }
    folder.write(path, KIND, meta, record.arrays)


def read_model(path: str | os.PathLike[str]) -> ModelRecord:
    """Read a model folder, every byte checked, arrays memory-mapped."""
    meta, arrays = folder.read(path, KIND)
    try:
        return ModelRecord(meta["ranker"], meta["params"], tuple(meta["feature_names"]), meta["version"], arrays)
    except (KeyError, TypeError) as error:
        raise DamagedFolderError(f"{os.fspath(path)}: the manifest lacks {error}: not written by kinrank") from None
