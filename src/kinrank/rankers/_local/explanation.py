"""Explanations: why a query is ranked as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.rankers._names import Names

_SAME = 1e-3  # distance within which a judged query of the same id is the query itself


@dataclass(frozen=True, eq=False)
class Explanation:
    """How one query was ranked."""

    qid: Any
    """The query."""
    neighbors: NDArray[Any]
    """The judged queries it learned from, nearest first. A cell is represented by one of its queries, as text."""
    distances: Float64
    """The distance to each of them, or to the center of its cell."""
    counts: Float64
    """How many judged queries each represents: 1, or what its cell contributed."""
    unusual: float
    """The share of judged queries whose nearest neighbor is nearer than that of this query: 0.5 for an ordinary query,
    1.0 for one that is farther from the judged queries than any of them from the others.
    """
    feature_names: tuple[str, ...]
    weights: Float64 | None
    global_weights: Float64 | None
    """The query's own weights and those of the global model, per unit of each feature; None if the model is not linear.
    """
    spread: Float64
    """The standard deviation of each feature among the candidates."""
    doc_id: NDArray[Any] | None = field(default=None, kw_only=True)
    """The candidates, if they have ids."""
    text: str | None = field(default=None, kw_only=True)
    """The text of the query, if it has one."""
    names: Names = field(default=Names(), kw_only=True, repr=False)
    """The texts of judged queries and the titles of documents, as far as the ranker knows them."""

    @property
    def heading(self) -> str:
        """The query by its text, or by its id if it has none."""
        return f"query {self.qid}" if not self.text else f"*{self.text}*"

    @property
    def others(self) -> Int64:
        """The positions of the neighbors that are not the query itself, which may be a judged query too."""
        return np.flatnonzero(~((self.distances < _SAME) & self._may_be_itself()))

    def _may_be_itself(self) -> NDArray[np.bool_]:
        """Return which neighbors have the id or the text of the query."""
        same_id: NDArray[np.bool_] = self.neighbors.astype(np.str_) == str(self.qid)
        return same_id if not self.text else same_id | (np.array(self.neighbor_names, dtype=np.str_) == self.text)

    def chosen(self, row: int) -> str:  # noqa: ARG002
        """Return in words how often people chose a document; empty if that is not known."""
        return ""

    def judged(self, row: int) -> str:  # noqa: ARG002
        """Return in words how a document was judged for similar queries; empty if that is not known."""
        return ""

    @property
    def neighbor_names(self) -> list[str]:
        """The text of each neighbor, or its id if the ranker does not know the text."""
        return self.names.name_queries(self.neighbors)

    def document_name(self, row: int) -> str:
        """Return the title of a candidate, or its id or number if the ranker does not know the title."""
        if self.doc_id is None:
            return f"document {row + 1}"
        return self.names.name_documents(self.doc_id[row : row + 1])[0]

    @property
    def effects(self) -> tuple[Float64, Float64] | None:
        """What a standard deviation of each feature adds to a score, by the query's own and by the global weights.

        Unlike weights, effects of different features are on one scale. None if the model is not linear.
        """
        if self.weights is None or self.global_weights is None:
            return None
        return self.weights * self.spread, self.global_weights * self.spread

    @property
    def shares(self) -> dict[str, float]:
        """The share of each ingredient of the ranker in the scores; empty if there is only one."""
        return {}

    def __str__(self) -> str:
        cells = "" if np.all(self.counts == 1) else f" in {len(self.neighbors)} cells"
        lines = [
            f"{self.heading}: learned from {self.counts.sum():.0f} judged queries{cells}, nearest {self._nearest()}",
            f"  farther from known queries than {self.unusual:.0%} of them are from each other",
        ]
        if self.effects is not None:
            own, everywhere = self.effects
            lines += [
                f"  {self.feature_names[f]}: effect {own[f]:+.3g}, globally {everywhere[f]:+.3g}"
                for f in np.argsort(-np.abs(self.effects).max(axis=0), kind="stable")[:5]
            ]
        return "\n".join(lines)

    def _nearest(self) -> str:
        others = self.others[:3]
        ids = self.neighbors[others]
        texts = zip(self.names.texts.find(ids), ids.tolist(), self.distances[others], strict=True)
        named = ((f"*{text}*" if text else str(qid), distance) for text, qid, distance in texts)
        return ", ".join(f"{name} ({distance:.2f})" for name, distance in named) or "none"


E = TypeVar("E", bound=Explanation)


def named(explained: Sequence[E], names: Names, queries: QuerySet) -> list[E]:
    """Return explanations with the texts of their queries, and names of judged queries and documents."""
    if queries.doc_title is not None:
        names = names.added(queries)
    texts = queries.query_columns.get(TEXT, np.full(len(queries), "")).tolist()
    return [
        replace(each, doc_id=queries[i].doc_id, text=str(texts[i]) or None, names=names)
        for i, each in enumerate(explained)
    ]


def candidate_moments(rows: Float32) -> tuple[Float64, Float64]:
    """Return mean and standard deviation of each feature over its finite values; 0 if it has none."""
    values = rows.astype(np.float64)
    finite = np.isfinite(values)
    counts = np.maximum(finite.sum(axis=0), 1)
    means = np.where(finite, values, 0.0).sum(axis=0) / counts
    deviations = np.where(finite, values - means, 0.0)
    return means, np.sqrt((deviations**2).sum(axis=0) / counts)


def ordinal(number: int) -> str:
    """Return a rank in words.

    Examples
    --------
    >>> [ordinal(number) for number in (1, 2, 3, 4, 11, 21, 112)]
    ['1st', '2nd', '3rd', '4th', '11th', '21st', '112th']
    """
    if number % 100 in (11, 12, 13) or number % 10 not in (1, 2, 3):
        return f"{number}th"
    return f"{number}{('1st', '2nd', '3rd')[number % 10 - 1][1:]}"


def ranks(scores: Float64) -> Int64:
    """Return the rank of each document, from 1; ties stay in order."""
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks
