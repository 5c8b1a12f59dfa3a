"""Linear models that are uploaded: Solr's learning to rank, and the plugin for Elasticsearch and OpenSearch.

One model serves many queries, so these carry the weights of a global model, or of a type of queries, not of one query.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from kinrank.engines.targets.base import Target


@dataclass(frozen=True)
class SolrLinearModel(Target):
    """A ``LinearModel`` of Solr's learning to rank (since 6.4), to be put to ``/schema/model-store``.

    Parameters
    ----------
    name : str
        The name of the model.
    store : str, optional
        The feature store that has the features; Solr's default store where not given.

    Notes
    -----
    Weights of any sign are sent as they are.

    Examples
    --------
    >>> SolrLinearModel().request({"title": 0.5})["params"]
    {'weights': {'title': 0.5}}
    """

    version: ClassVar[str] = "Solr 6.4"
    documentation: ClassVar[str] = "https://solr.apache.org/guide/solr/latest/query-guide/learning-to-rank.html"
    allows_negative: ClassVar[bool] = True
    per_query: ClassVar[bool] = False

    name: str = "kinrank"
    store: str | None = None

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
    """A ``model/linear`` of the Learning to Rank plugin, to be posted to ``_ltr/_featureset/NAME/_createmodel``.

    The plugin 1.0 for Elasticsearch and the one that comes with OpenSearch since 2.19 take the same.

    Parameters
    ----------
    name : str
        The name of the model.

    Notes
    -----
    Lucene allows no negative score, and the model has no constant to lift one, so weights must not be negative.

    Examples
    --------
    >>> PluginLinearModel().request({"title": 0.5})
    {'model': {'name': 'kinrank', 'model': {'type': 'model/linear', 'definition': '{"title": 0.5}'}}}
    """

    version: ClassVar[str] = "Learning to Rank plugin 1.0"
    documentation: ClassVar[str] = (
        "https://elasticsearch-learning-to-rank.readthedocs.io/en/latest/training-models.html"
    )
    per_query: ClassVar[bool] = False

    name: str = "kinrank"

    def _request(self, weights: dict[str, float], clauses: dict[str, Any]) -> dict[str, Any]:  # noqa: ARG002
        definition = json.dumps(weights, ensure_ascii=False)
        return {"model": {"name": self.name, "model": {"type": "model/linear", "definition": definition}}}
