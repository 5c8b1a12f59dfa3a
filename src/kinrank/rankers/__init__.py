"""Rankers: one file each, one contract."""

from __future__ import annotations

import os

from kinrank.rankers.base import RANKERS, Ranker
from kinrank.store import read_model

__all__ = ["RANKERS", "Ranker", "load"]


def load(path: str | os.PathLike[str]) -> Ranker:
    """Read a ranker that `Ranker.save` wrote; its arrays are memory-mapped.

    Raises
    ------
    kinrank.errors.StoreError
        Where the folder is not a model, is from a newer kinrank, or has changed since it was written.
    """
    record = read_model(path)
    ranker: Ranker = RANKERS[record.ranker].from_record(record)
    return ranker
