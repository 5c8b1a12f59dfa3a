"""Rankers: one file or folder each, one contract (`base`), found by name in `RANKERS`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kinrank.rankers.registry import RANKERS

if TYPE_CHECKING:
    from kinrank.rankers.base import Ranker as Ranker
    from kinrank.rankers.base import load as load

__all__ = ["RANKERS", "Ranker", "load"]


def __getattr__(name: str) -> Any:
    # Imported on first use, so that the command line's help is quick.
    if name not in ("Ranker", "load"):
        raise AttributeError(f"module 'kinrank.rankers' has no attribute {name!r}")
    return getattr(importlib.import_module("kinrank.rankers.base"), name)
