"""Build requests that carry weights, for engines that kinrank does not connect to.

``TARGETS.make("vespa(profile='kin')").request(weights)`` returns the request, or the part of it that holds the weights,
in the documented form of the engine. Nothing is sent.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kinrank.registry import Registry

if TYPE_CHECKING:
    from kinrank.engines.targets.base import Target as Target
    from kinrank.engines.targets.base import value_ranges as value_ranges

__all__ = ["TARGETS", "Target", "value_ranges"]

TARGETS = Registry(
    "target",
    {
        "opensearch-hybrid": "kinrank.engines.targets.opensearch:HybridQuery",
        "opensearch-rrf": "kinrank.engines.targets.opensearch:HybridRRF",
        "elasticsearch-linear": "kinrank.engines.targets.elasticsearch:LinearRetriever",
        "elasticsearch-rrf": "kinrank.engines.targets.elasticsearch:RRFRetriever",
        "vespa": "kinrank.engines.targets.other_engines:VespaQueryInput",
        "qdrant-formula": "kinrank.engines.targets.qdrant:FormulaQuery",
        "qdrant-rrf": "kinrank.engines.targets.qdrant:WeightedRRF",
        "weaviate-hybrid": "kinrank.engines.targets.other_engines:WeaviateHybridSearch",
        "milvus-weighted": "kinrank.engines.targets.other_engines:MilvusWeightedSearch",
        "lancedb-hybrid": "kinrank.engines.targets.other_engines:LanceDBLinearCombination",
        "pgvector": "kinrank.engines.targets.pgvector:HybridSelect",
        "azure-hybrid": "kinrank.engines.targets.other_engines:AzureHybridSearch",
        "typesense-hybrid": "kinrank.engines.targets.other_engines:TypesenseHybridSearch",
        "solr-ltr": "kinrank.engines.targets.models:SolrLinearModel",
        "ltr-plugin": "kinrank.engines.targets.models:PluginLinearModel",
    },
)


def __getattr__(name: str) -> Any:
    # Lazy, to keep the command line's help fast: it lists the names in TARGETS.
    if name not in ("Target", "value_ranges"):
        raise AttributeError(f"module 'kinrank.engines.targets' has no attribute {name!r}")
    return getattr(importlib.import_module("kinrank.engines.targets.base"), name)
