"""Finished pieces of work, kept in a folder each and sealed, so that a run that was killed can go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import kinrank
from kinrank import folder
from kinrank.errors import DamagedFolderError
from reproduction.data_folder import DataFolder
from reproduction.part import Findings, Part, Values

KIND = "findings"
Kept = tuple[Findings, dict[str, float]]
"""What a piece found, and its ``cpu`` and ``wall`` seconds."""


class Keeper:
    """Keeps the findings of pieces.

    Parameters
    ----------
    path
        The folder; it is made when the first piece is kept.
    data
        What the pieces read. Findings from other data, or of another version of kinrank, are not taken.
    """

    def __init__(self, path: Path, data: DataFolder) -> None:
        self.path = path
        self.data = data

    def keep(self, part: Part, piece: str, findings: Findings, seconds: dict[str, float]) -> Kept:
        """Write the findings so that they are there whole or not at all; answers them as they are read again."""
        # As text, since a manifest sorts its keys, and the order of figures is that of tables and curves.
        meta = {**self._made_of(part, piece), "figures": json.dumps(findings.figures), "seconds": seconds}
        # Names of methods are no file names: they are told in the meta data, in the order of the arrays.
        meta["values"] = list(findings.values)
        arrays = {f"values{i}": np.asarray(values) for i, values in enumerate(findings.values.values())}
        folder.write(self._place(part, piece), KIND, meta, arrays)
        return _read(meta, arrays)

    def kept(self, part: Part, piece: str) -> Kept | None:
        """Findings and seconds of a piece; None where there are none, or none that can be trusted."""
        place = self._place(part, piece)
        if not place.exists():
            return None
        try:
            meta, arrays = folder.read(place, KIND)
        except DamagedFolderError:
            shutil.rmtree(place)  # ours, and of no use: nothing may stand in the way of writing it again
            return None
        made_of = self._made_of(part, piece)
        if {name: meta.get(name) for name in made_of} != made_of:
            return None
        return _read(meta, arrays)

    def _made_of(self, part: Part, piece: str) -> dict[str, Any]:
        return {
            "part": part.name,
            "piece": piece,
            "kinrank": kinrank.__version__,
            "data": self.data.fingerprint(part.pieces[piece].needs),
        }

    def _place(self, part: Part, piece: str) -> Path:
        # Letters, digits and dashes only: "1,500 + 400, seed 1" is a folder "1-500-400-seed-1".
        words = "".join(letter if letter.isalnum() else " " for letter in piece).split()
        return self.path / part.name / "-".join(words)


def _read(meta: Mapping[str, Any], arrays: Mapping[str, Values]) -> Kept:
    values = {name: np.array(arrays[f"values{i}"]) for i, name in enumerate(meta["values"])}
    return Findings(json.loads(meta["figures"]), values), meta["seconds"]
