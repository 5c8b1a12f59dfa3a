"""Why a ranker that adds evidence to a wrapped one ranks documents as it does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.rankers.local.explanation import Explanation, named, ordinal, ranks
from kinrank.rankers.names import Names

_SHOWN = 10


@dataclass(frozen=True, eq=False)
class EvidenceExplanation(Explanation):
    """What is known of the documents of a query, and what the wrapped ranker would do without it."""

    rank: Int64
    rank_without: Int64
    """The rank of each document, from 1, and that without evidence; shape (documents,)."""
    wrapped: Explanation | None
    """The explanation of the wrapped ranker, if it has one."""

    known: ClassVar[str]
    unknown: ClassVar[str]
    """The first line if something is known of a document, and if nothing is."""
    without: ClassVar[str] = "that"
    """The evidence in a word."""

    @property
    def shares(self) -> dict[str, float]:
        """The share of each ingredient of the wrapped ranker in its scores."""
        return {} if self.wrapped is None else self.wrapped.shares

    @abstractmethod
    def _evidence(self, row: int) -> str:
        """Return in words what is known of a document; empty if nothing is."""

    def _told(self, row: int) -> str:
        """Return in words what is known of a document, and its rank without that; empty if nothing is known."""
        evidence, without = self._evidence(row), self.rank_without[row]
        moved = evidence and without != self.rank[row]
        return f"{evidence}; without {self.without} it would be {ordinal(without)}" if moved else evidence

    def __str__(self) -> str:
        told = [(row, self._told(row)) for row in np.argsort(self.rank)[:_SHOWN].tolist()]
        lines = [f"  {ordinal(self.rank[row])}: {self.document_name(row)}, {words}" for row, words in told if words]
        first = f"{self.heading}: {self.known if lines else self.unknown}"
        return "\n".join([first, *lines, *([] if self.wrapped is None else [str(self.wrapped)])])


def fields_around(
    queries: QuerySet, without: Float64, scores: Float64, wrapped: Sequence[Explanation] | None, names: Names
) -> Iterator[dict[str, Any]]:
    """Yield the fields of `EvidenceExplanation` for each query.

    Parameters
    ----------
    queries
        The queries.
    without, scores
        The scores without and with evidence.
    wrapped
        The explanations of the wrapped ranker, if it has any.
    names
        The names of queries and documents.
    """
    by_wrapped = [None] * len(queries) if wrapped is None else named(wrapped, names, queries)
    for position, inner in enumerate(by_wrapped):
        rows = slice(queries.offsets[position], queries.offsets[position + 1])
        known = _nothing_known(queries.qid[position].item(), queries.feature_names)
        if inner is not None:
            known = {each.name: getattr(inner, each.name) for each in fields(Explanation)}
        yield known | {"rank": ranks(scores[rows]), "rank_without": ranks(without[rows]), "wrapped": inner}


def _nothing_known(qid: Any, feature_names: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of `Explanation` for a query whose ranker does not explain."""
    none = np.empty(0)
    return {
        "qid": qid,
        "neighbors": np.empty(0, dtype=np.str_),
        "distances": none,
        "counts": none,
        "unusual": 0.0,
        "feature_names": feature_names,
        "weights": None,
        "global_weights": None,
        "spread": np.zeros(len(feature_names)),
    }
