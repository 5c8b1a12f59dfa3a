"""Search engines behind one contract, found by name in `ENGINES`; `connect` opens one by its address."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinrank.engines.address import ENGINES as ENGINES
    from kinrank.engines.address import connect as connect
    from kinrank.engines.base import Engine as Engine
    from kinrank.engines.base import Health as Health
    from kinrank.engines.base import Hits as Hits
    from kinrank.engines.base import LoggedFeatures as LoggedFeatures
    from kinrank.engines.feature_set import FeatureSet as FeatureSet

_HOMES = {
    "ENGINES": "address",
    "Engine": "base",
    "FeatureSet": "feature_set",
    "Health": "base",
    "Hits": "base",
    "LoggedFeatures": "base",
    "connect": "address",
}

__all__ = ["ENGINES", "Engine", "FeatureSet", "Health", "Hits", "LoggedFeatures", "connect"]


def __getattr__(name: str) -> Any:
    # Imported when asked for, so that the command line's help, which names targets, is quick.
    if name not in _HOMES:
        raise AttributeError(f"module 'kinrank.engines' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kinrank.engines.{_HOMES[name]}"), name)
