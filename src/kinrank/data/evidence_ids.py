"""The ids of documents that people chose, next to evidence, which has only hashes of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank import folder
from kinrank.arrays import State
from kinrank.data.evidence_kernel import hash_texts
from kinrank.data.text_table import TextTable

_PREFIX = "id_"


def chosen_ids(documents: NDArray[Any], choices: ArrayLike) -> TextTable:
    """Return the ids of the documents that were chosen.

    Examples
    --------
    >>> chosen_ids(np.array(["d7", "d9", "d7"]), [0, 0, 2]).find_hashes(hash_texts(np.array(["d7", "d9"])))
    ['d7', None]
    """
    chosen = np.broadcast_to(np.asarray(choices), documents.shape) > 0
    ids = np.unique(documents[chosen].astype(np.str_))
    return TextTable.of_hashes(hash_texts(ids), ids.tolist())


def arrays_of(ids: TextTable) -> State:
    """Return the arrays of ids, as a folder of evidence names them."""
    return {f"{_PREFIX}{name}": array for name, array in ids.get_state().items()}


def table_in(arrays: Mapping[str, NDArray[Any]]) -> TextTable:
    """Return the ids among the arrays of a folder; a folder of an earlier version has none."""
    found = {name: array for name, array in arrays.items() if name.startswith(_PREFIX)}
    return TextTable.from_state({name.removeprefix(_PREFIX): array for name, array in found.items()})


def write_ids(staging: Path, ids: TextTable) -> list[str]:
    """Write ids into a folder, and return the names of their arrays."""
    named = arrays_of(ids)
    for name, array in named.items():
        np.save(staging / folder.file_name(name), array)
    return list(named)
