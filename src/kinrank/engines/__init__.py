"""Search engines behind one contract, found by name in `ENGINES`; `connect` opens one by its address."""

from __future__ import annotations

from kinrank.engines.base import Engine, Health, Hits, Logged
from kinrank.registry import Registry

__all__ = ["ENGINES", "Engine", "Health", "Hits", "Logged"]

ENGINES = Registry("engine", {})
