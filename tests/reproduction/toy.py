"""A paper so small that its experiments take no time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reproduction.data_folder import DataFolder
from reproduction.part import Findings, Part, Piece

FILE = "numbers.txt"


def read(piece: int, data: DataFolder) -> Findings:
    """The number of the file, times `piece`; every call leaves a mark."""
    numbers = np.loadtxt(data.path / FILE, ndmin=1)
    (data.path / f"called-{piece}-{os.getpid()}-{os.urandom(4).hex()}").touch()
    return Findings({"z": piece, "a": piece, "process": os.getpid()}, {"per query, of each": piece * numbers})


def fail(data: DataFolder) -> Findings:
    raise ZeroDivisionError("on purpose")


def summary(found: Mapping[str, Findings]) -> dict[str, Any]:
    sums = {name: float(each.values["per query, of each"].sum()) for name, each in found.items()}
    return {"sum": sums, 1: 2, "order": [name for each in found.values() for name in each.figures]}


PART = Part("toy", "sser", {f"piece {i}, of 3": Piece(partial(read, i), (FILE,)) for i in (1, 2, 3)}, summary)
FAILING = Part("toy", "sser", {**PART.pieces, "last": Piece(fail, (FILE,), minutes=0.01)}, summary)


def folder(path: Path) -> DataFolder:
    path.mkdir()
    (path / FILE).write_text("1\n2\n")
    return DataFolder(path)


def calls(data: DataFolder) -> int:
    return len(list(data.path.glob("called-*")))
