"""Requests that carry weights, for engines that somebody else asks: pure functions to the documented form.

A target is named in `TARGETS`; ``TARGETS.make("vespa(profile='kin')").request(weights)`` is the request, or the part of
it that holds the weights. Nothing is sent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kinrank.registry import Registry

if TYPE_CHECKING:
    from kinrank.engines.targets.base import Target as Target
    from kinrank.engines.targets.base import value_ranges as value_ranges
    from kinrank.engines.targets.clauses import fill_clauses as fill_clauses

_HOMES = {"Target": "base", "value_ranges": "base", "fill_clauses": "clauses"}

__all__ = ["TARGETS", "Target", "fill_clauses", "value_ranges"]

TARGETS = Registry(
    "target",
    {
        "opensearch-hybrid": "kinrank.engines.targets.opensearch:HybridQuery",
        "elasticsearch-linear": "kinrank.engines.targets.elasticsearch:LinearRetriever",
        "vespa": "kinrank.engines.targets.vespa:QueryInput",
        "qdrant-formula": "kinrank.engines.targets.qdrant:FormulaQuery",
        "qdrant-rrf": "kinrank.engines.targets.qdrant:WeightedRRF",
        "weaviate-hybrid": "kinrank.engines.targets.weaviate:HybridSearch",
        "solr-ltr": "kinrank.engines.targets.models:SolrLinearModel",
        "ltr-plugin": "kinrank.engines.targets.models:PluginLinearModel",
    },
)


def __getattr__(name: str) -> Any:
    # Names are listed without importing what they stand for, so that the command line's help is quick.
    if name not in _HOMES:
        raise AttributeError(f"module 'kinrank.engines.targets' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kinrank.engines.targets.{_HOMES[name]}"), name)
