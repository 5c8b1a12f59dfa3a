"""Linear models to upload: Solr's Learning To Rank, and the plugin for Elasticsearch and OpenSearch.

One model serves many queries, so the weights are those of a global model or of a class of queries.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kinrank.engines.targets.base import Target


@dataclass(frozen=True)
class SolrLinearModel(Target):
    """A ``LinearModel`` of Solr's Learning To Rank (since 6.4). PUT it to ``/schema/model-store``.

    Notes
    -----
    Weights of any sign are sent unchanged.

    Examples
    --------
    >>> SolrLinearModel().request({"title": 0.5})["params"]
    {'weights': {'title': 0.5}}
    """

    version = "Solr 6.4"
    documentation = "https://solr.apache.org/guide/solr/latest/query-guide/learning-to-rank.html"
    allows_negative = True
    per_query = False

    name: str = "kinrank"
    """Name of the model."""
    store: str | None = None
    """Feature store of the features. Defaults to Solr's default store."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        model = {
            "class": "org.apache.solr.ltr.model.LinearModel",
            "name": self.name,
            "features": [{"name": name} for name in weights],
            "params": {"weights": weights},
        }
        return model if self.store is None else {"store": self.store, **model}


@dataclass(frozen=True)
class PluginLinearModel(Target):
    """A ``model/linear`` of the Learning to Rank plugin. POST it to ``_ltr/_featureset/NAME/_createmodel``.

    Plugin 1.0 for Elasticsearch and the plugin included in OpenSearch since 2.19 accept the same request.

    Notes
    -----
    Weights must not be negative: Lucene does not allow negative scores, and the model has no constant term.

    Examples
    --------
    >>> PluginLinearModel().request({"title": 0.5})
    {'model': {'name': 'kinrank', 'model': {'type': 'model/linear', 'definition': '{"title": 0.5}'}}}
    """

    version = "Learning to Rank plugin 1.0"
    documentation = "https://elasticsearch-learning-to-rank.readthedocs.io/en/latest/training-models.html"
    per_query = False

    name: str = "kinrank"
    """Name of the model."""

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        definition = json.dumps(weights, ensure_ascii=False)
        return {"model": {"name": self.name, "model": {"type": "model/linear", "definition": definition}}}
