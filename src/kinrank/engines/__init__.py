"""Search engines behind one interface. `connect` opens one by its address; `ENGINES` lists the supported ones."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinrank.engines.base import ENGINES as ENGINES
    from kinrank.engines.base import Engine as Engine
    from kinrank.engines.base import FoundDocuments as FoundDocuments
    from kinrank.engines.base import Health as Health
    from kinrank.engines.base import Hits as Hits
    from kinrank.engines.base import LoggedFeatures as LoggedFeatures
    from kinrank.engines.base import connect as connect
    from kinrank.engines.features import FeatureSet as FeatureSet

_MODULES = {
    "ENGINES": "base",
    "Engine": "base",
    "FeatureSet": "features",
    "FoundDocuments": "base",
    "Health": "base",
    "Hits": "base",
    "LoggedFeatures": "base",
    "connect": "base",
}

__all__ = ["ENGINES", "Engine", "FeatureSet", "FoundDocuments", "Health", "Hits", "LoggedFeatures", "connect"]


def __getattr__(name: str) -> Any:
    # Lazy, to keep the command line's help fast: it imports `kinrank.engines.targets` for the target names.
    if name not in _MODULES:
        raise AttributeError(f"module 'kinrank.engines' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kinrank.engines.{_MODULES[name]}"), name)
