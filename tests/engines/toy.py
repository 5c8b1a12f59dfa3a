"""A small in-memory engine with known responses and scripted failures."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kinrank import QuerySet
from kinrank.engines.base import Document, Engine, Health, Hits, LoggedFeatures
from kinrank.errors import EngineError


class ToyEngine(Engine):
    """Documents d0 to d9. Feature "number" is the number of the document; "even" is missing for odd numbers."""

    feature_names = ("number", "even")

    def __init__(self, failures: Mapping[str, list[EngineError]] | None = None) -> None:
        self.failures = dict(failures or {})
        self.logged_queries: list[str] = []
        self.index_name = "toys"
        self._lock = threading.Lock()

    def search(self, query: str, *, size: int, **_: Any) -> Hits:
        ids = [f"d{i}" for i in range(min(size, 10))]
        return Hits(np.array(ids), np.linspace(1, 0, len(ids)))

    def log(
        self, query: str, doc_ids: Sequence[str], *, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> LoggedFeatures:
        with self._lock:
            self.logged_queries.append(query)
            if self.failures.get(query):
                raise self.failures[query].pop(0)
        numbers = np.array([int(doc_id[1:]) for doc_id in doc_ids])
        found = numbers < 10
        values = np.stack([numbers, np.where(numbers % 2, np.nan, 1.0)], axis=1).astype(np.float32)
        values[~found] = np.nan
        return LoggedFeatures(values, found)

    def apply_request(self, query: str, weights: ArrayLike, **_: Any) -> dict[str, Any]:
        return {"query": query, "weights": np.asarray(weights).tolist()}

    def apply(self, query: str, weights: ArrayLike, **_: Any) -> Hits:
        return self.search(query, size=10)

    def index(self, documents: Iterable[Document], *, settings: Mapping[str, Any] | None = None) -> int:
        return 0

    def health(self) -> Health:
        return Health("toy 1", "green", 1, 10)

    def identity(self) -> dict[str, str]:
        return {**super().identity(), "index": self.index_name}

    def close(self) -> None:
        pass


def toy_judgments(n_queries: int = 7) -> QuerySet:
    """Return queries with judged documents d0, d3 and d12. The index has no d12."""
    return QuerySet.from_arrays(
        np.empty((3 * n_queries, 0)),
        [1, 0, 1] * n_queries,
        qid=np.repeat([f"q{i}" for i in range(n_queries)], 3),
        doc_id=["d0", "d3", "d12"] * n_queries,
        query_columns={"text": [f"text {i}" for i in range(n_queries)]},
    )
