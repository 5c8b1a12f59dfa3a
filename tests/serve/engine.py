"""An engine in this process that can be stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from kinrank.engines import Engine, Health, Hits, LoggedFeatures
from kinrank.engines._query_dsl import PLAIN, SearchOptions
from kinrank.errors import EngineUnreachableError, ParameterError


class InMemoryEngine(Engine):
    """Documents with one value each, ranked by ascending value for the queries "up" and "down".

    The features are those of `kinrank.datasets.make_two_camps`.
    """

    feature_names = ("value", "camp")
    apply_params: ClassVar[Mapping[str, str]] = {"search_type": "exact"}

    def __init__(self, values: Sequence[float]) -> None:
        self.values = np.array(values, dtype=np.float32)
        self.running = True
        self.logging = True
        self.compares_vectors = False

    def search(
        self,
        query: str,
        *,
        size: int,
        vector: Any = None,
        options: SearchOptions = PLAIN,
        timeout: float | None = None,
    ) -> Hits:
        """Find documents, with the filter {"ids": {"values": [...]}} only these; all facets count the documents."""
        self._check(self.running)
        if query not in ("up", "down"):
            return Hits(np.array([], dtype=np.str_), np.array([]))
        order = np.argsort(self.values)
        if options.filter_clause is not None:
            order = np.array([i for i in order if f"d{i}" in options.filter_clause["ids"]["values"]], dtype=np.int64)
        total = {"value": len(order), "relation": "eq"}
        order = order[:size]
        return Hits(
            np.array([f"d{i}" for i in order]),
            -self.values[order].astype(np.float64),
            total,
            [{name: float(self.values[i]) for name in options.fields} for i in order] if options.fields else (),
            {name: {"value": total["value"]} for name in options.facets},
        )

    def log(
        self, query: str, doc_ids: Sequence[str], *, vector: Any = None, timeout: float | None = None
    ) -> LoggedFeatures:
        self._check(self.running and self.logging)
        if self.compares_vectors and vector is None:
            raise ParameterError("feature 'near' compares vectors: pass vector=, the embedding of the query")
        value_of = {f"d{i}": value for i, value in enumerate(self.values)}
        rows = np.array([value_of.get(doc_id, np.nan) for doc_id in doc_ids], dtype=np.float32)
        camp = np.full(len(rows), 1 if query == "up" else -1, dtype=np.float32)
        return LoggedFeatures(np.column_stack([rows, camp]), np.isfinite(rows))

    def apply_request(self, query: str, weights: Any, **more: Any) -> dict[str, Any]:
        return {"query": query, "weights": np.asarray(weights).tolist(), **more}

    def apply(self, query: str, weights: Any, *, size: int, **_: Any) -> Hits:
        hits = self.search(query, size=size)
        scores = self.features(query, hits.doc_id.tolist()) @ np.asarray(weights)
        order = np.argsort(-scores, kind="stable")
        return Hits(hits.doc_id[order], scores[order])

    def index(self, documents: Iterable[Any], *, settings: Mapping[str, Any] | None = None) -> int:
        return len(self.values)

    def health(self) -> Health:
        self._check(self.running)
        return Health("memory 1", "green", 1, len(self.values))

    def close(self) -> None:
        self.running = False

    def _check(self, up: bool) -> None:
        if not up:
            raise EngineUnreachableError("no node of the engine answers; start one")
