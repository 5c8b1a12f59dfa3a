"""Why a `ChoiceRanker` ranks the documents of a query as it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from kinrank.arrays import Float64, Int64
from kinrank.data.evidence_totals import Totals
from kinrank.data.queryset import QuerySet
from kinrank.rankers.local.explanation import Explanation, named
from kinrank.rankers.names import Names

_SHOWN = 10


@dataclass(frozen=True, eq=False)
class ChoiceExplanation(Explanation):
    """What people chose for a query, and what the wrapped ranker would do without it."""

    looks: Float64
    choices: Float64
    """How often people looked at each document for this query, and how often they chose it; shape (documents,)."""
    rank: Int64
    rank_without: Int64
    """The rank of each document, from 1, and that without evidence; shape (documents,)."""
    similar: list[dict[str, tuple[float, float]]]
    """For each document, the looks and choices for similar queries by their names."""
    wrapped: Explanation | None
    """The explanation of the wrapped ranker, if it has one."""

    @property
    def shares(self) -> dict[str, float]:
        """The share of each ingredient of the wrapped ranker in its scores."""
        return {} if self.wrapped is None else self.wrapped.shares

    def __str__(self) -> str:
        order = np.argsort(self.rank)[:_SHOWN]
        lines = [line for row in order.tolist() if (line := self._line(row))]
        known = [f"{self.heading}: what people chose", *lines] if lines else []
        first = f"{self.heading}: no evidence of what people chose, so the wrapped ranker's order"
        return "\n".join([*(known or [first]), *([] if self.wrapped is None else [str(self.wrapped)])])

    def chosen(self, row: int) -> str:
        """Return in words how often people chose a document, and its rank without that; empty if nobody looked."""
        counts = {"for this query": (self.looks[row], self.choices[row])}
        counts |= {f"for *{name}*": both for name, both in self.similar[row].items()}
        found = [words for where, both in counts.items() if (words := _counted(*both, where))]
        if not found:
            return ""
        moved = self.rank_without[row] != self.rank[row]
        without = f"; without that it would be {_ordinal(self.rank_without[row])}" if moved else ""
        return f"chosen {', '.join(found)}{without}"

    def _line(self, row: int) -> str:
        chosen = self.chosen(row)
        return chosen and f"  {_ordinal(self.rank[row])}: {self.document_name(row)}, {chosen}"


def _counted(looks: float, choices: float, where: str) -> str:
    """Return looks and choices in words; empty if there is less than one."""
    times = max(round(choices), 0)
    seen = max(round(looks), times)  # looks are expected ones, and who chose has looked
    return (
        ""
        if not seen
        else f"{times} {'time' if times == 1 else 'times'} in {seen} {'look' if seen == 1 else 'looks'} {where}"
    )


def _ordinal(number: int) -> str:
    """Return a rank in words.

    Examples
    --------
    >>> [_ordinal(number) for number in (1, 2, 3, 4, 11, 21, 112)]
    ['1st', '2nd', '3rd', '4th', '11th', '21st', '112th']
    """
    if number % 100 in (11, 12, 13) or number % 10 not in (1, 2, 3):
        return f"{number}th"
    return f"{number}{('1st', '2nd', '3rd')[number % 10 - 1][1:]}"


def explain_choices(
    queries: QuerySet,
    without: Float64,
    scores: Float64,
    own: Totals,
    similar: Sequence[list[dict[str, tuple[float, float]]]],
    wrapped: Sequence[Explanation] | None,
    names: Names,
) -> list[ChoiceExplanation]:
    """Explain queries, given their scores without and with evidence and the explanations of the wrapped ranker."""
    by_wrapped = [None] * len(queries) if wrapped is None else named(wrapped, names, queries)
    explained = []
    for position, inner in enumerate(by_wrapped):
        rows = slice(queries.offsets[position], queries.offsets[position + 1])
        known = _nothing_known(queries.qid[position].item(), queries.feature_names)
        if inner is not None:
            known = {each.name: getattr(inner, each.name) for each in fields(Explanation)}
        explained.append(
            ChoiceExplanation(
                **known,
                looks=own.looks[rows],
                choices=own.choices[rows],
                rank=_ranks(scores[rows]),
                rank_without=_ranks(without[rows]),
                similar=list(similar[position]) or [{} for _ in range(rows.stop - rows.start)],
                wrapped=inner,
            )
        )
    return named(explained, names, queries)


def _ranks(scores: Float64) -> Int64:
    """Return the rank of each document, from 1; ties stay in order."""
    ranks = np.empty(len(scores), dtype=np.int64)
    ranks[np.argsort(-scores, kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks


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
