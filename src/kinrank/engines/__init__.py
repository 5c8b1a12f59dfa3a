"""Search engines behind one contract, found by name in `ENGINES`; `connect` opens one by its address."""

from kinrank.engines.address import ENGINES, connect
from kinrank.engines.base import Engine, Health, Hits, Logged
from kinrank.engines.definitions import FeatureSet

__all__ = ["ENGINES", "Engine", "FeatureSet", "Health", "Hits", "Logged", "connect"]
