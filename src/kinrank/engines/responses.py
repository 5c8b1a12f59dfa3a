"""What engines return: documents, their features, and the health of an index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32

Document = tuple[str, Mapping[str, Any]]
"""A document id and its fields."""


@dataclass(frozen=True, eq=False)
class Hits:
    """Documents found by an engine, best first.

    Examples
    --------
    >>> hits = Hits(np.array(["d7", "d3"]), np.array([4.5, 1.0]))
    >>> len(hits), hits.doc_id.tolist()
    (2, ['d7', 'd3'])
    """

    doc_id: NDArray[np.str_]
    """Document ids in the engine's order."""
    score: NDArray[np.float64]
    """The engine's scores. They are comparable within one response only."""
    total: Mapping[str, Any] | None = None
    """How many documents match: ``{"value": 10000, "relation": "gte"}`` means at least 10,000."""
    fields: Sequence[Mapping[str, Any]] = ()
    """The requested fields of each document; empty if none were requested."""
    facets: Mapping[str, Any] = field(default_factory=dict)
    """The results of the requested facets, as the engine returns them."""

    def __len__(self) -> int:
        return len(self.doc_id)

    def take(self, places: Sequence[int]) -> Hits:
        """Return some of the documents, with the total and the facets of all."""
        chosen = np.asarray(places, dtype=np.int64)
        fields = [self.fields[place] for place in places] if self.fields else ()
        return replace(self, doc_id=self.doc_id[chosen], score=self.score[chosen], fields=fields)

    def followed_by(self, more: Hits) -> Hits:
        """Return these documents and then others, with the total and the facets of these."""
        return replace(
            self,
            doc_id=np.concatenate([self.doc_id, more.doc_id]),
            score=np.concatenate([self.score, more.score]),
            fields=[*self.fields, *more.fields],
        )


@dataclass(frozen=True, eq=False)
class FoundDocuments:
    """Documents that a search found, then documents that were requested by id, with their features."""

    hits: Hits
    """Documents in the engine's order, then the others. The total and the facets are those of the search alone."""
    features: Float32
    """Features of the documents; shape (documents, features)."""
    n_found: int
    """The number of documents that the search found."""
    problem: str | None = None
    """Why documents that were requested by id are missing, if they are."""


@dataclass(frozen=True, eq=False)
class LoggedFeatures:
    """Features of documents, computed by an engine."""

    values: Float32
    """NaN if a feature defined with ``missing = "nan"`` is missing. A document that is not in the index has a row of
    NaN; shape (documents, features).
    """
    found: NDArray[np.bool_]
    """Whether each document is in the index; shape (documents,)."""


@dataclass(frozen=True)
class Health:
    """Health of an engine and an index."""

    engine: str
    """Name and version: "elasticsearch 8.12.2"."""
    status: str
    """Green: all shards are allocated; yellow: some replicas are not; red: some primary shards are not."""
    nodes: int
    """Number of nodes."""
    documents: int
    """Number of documents in the index."""


def missing_ids(hits: Hits, doc_ids: Sequence[str]) -> list[str]:
    """Return the documents, each once, that are not among the hits."""
    found = set(hits.doc_id.tolist())
    return [doc_id for doc_id in dict.fromkeys(doc_ids) if doc_id not in found]
