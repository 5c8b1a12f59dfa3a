"""Search engines behind one interface. `connect` opens one by its address; `ENGINES` lists the supported ones."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinrank.engines.address import ENGINES as ENGINES
    from kinrank.engines.address import connect as connect
    from kinrank.engines.base import Engine as Engine
    from kinrank.engines.feature_set import FeatureSet as FeatureSet
    from kinrank.engines.responses import FoundDocuments as FoundDocuments
    from kinrank.engines.responses import Health as Health
    from kinrank.engines.responses import Hits as Hits
    from kinrank.engines.responses import LoggedFeatures as LoggedFeatures

_MODULES = {
    "ENGINES": "address",
    "Engine": "base",
    "FeatureSet": "feature_set",
    "FoundDocuments": "responses",
    "Health": "responses",
    "Hits": "responses",
    "LoggedFeatures": "responses",
    "connect": "address",
}

__all__ = ["ENGINES", "Engine", "FeatureSet", "FoundDocuments", "Health", "Hits", "LoggedFeatures", "connect"]


def __getattr__(name: str) -> Any:
    # Lazy, to keep the command line's help fast: it imports `kinrank.engines.targets` for the target names.
    if name not in _MODULES:
        raise AttributeError(f"module 'kinrank.engines' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kinrank.engines.{_MODULES[name]}"), name)
