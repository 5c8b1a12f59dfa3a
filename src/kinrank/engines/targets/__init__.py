"""Build requests that carry weights, to send with your own client.

``TARGETS.make("elasticsearch-linear(window=200)").request(weights, clauses)`` returns the request in the
documented form of the engine. Nothing is sent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kinrank.registry import Registry

if TYPE_CHECKING:
    from kinrank.engines.targets.requests import Target as Target
    from kinrank.engines.targets.requests import value_ranges as value_ranges

__all__ = ["TARGETS", "Target", "value_ranges"]

TARGETS = Registry(
    "target",
    {
        "opensearch-hybrid": "kinrank.engines.targets.requests:HybridQuery",
        "elasticsearch-linear": "kinrank.engines.targets.requests:LinearRetriever",
        "qdrant-formula": "kinrank.engines.targets.requests:FormulaQuery",
    },
)


def __getattr__(name: str) -> Any:
    # Lazy, to keep the command line's help fast: it lists the names in TARGETS.
    if name not in ("Target", "value_ranges"):
        raise AttributeError(f"module 'kinrank.engines.targets' has no attribute {name!r}")
    return getattr(importlib.import_module("kinrank.engines.targets.requests"), name)
