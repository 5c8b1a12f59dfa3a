"""Why a `ChoiceRanker` ranks the documents of a query as it does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.memory.evidence import Totals
from kinrank.rankers.local.explanation import Explanation, named
from kinrank.rankers.names import Names
from kinrank.rankers.wrapped_explanation import EvidenceExplanation, fields_around


@dataclass(frozen=True, eq=False)
class ChoiceExplanation(EvidenceExplanation):
    """What people chose for a query, and what the wrapped ranker would do without it."""

    looks: Float64
    choices: Float64
    """How often people looked at each document for this query, and how often they chose it; shape (documents,)."""
    held_back: Float64
    """How many of these choices do not lift the document, because too few people made them; shape (documents,)."""
    similar: list[dict[str, tuple[float, float]]]
    """For each document, the looks and choices for similar queries by their names."""

    known: ClassVar[str] = "what people chose"
    unknown: ClassVar[str] = "no evidence of what people chose, so the wrapped ranker's order"

    def chosen(self, row: int) -> str:
        """Return in words how often people chose a document, and its rank without that; empty if nobody looked."""
        return self._told(row)

    def judged(self, row: int) -> str:
        """Return in words how a document was judged for similar queries, if the wrapped ranker knows it."""
        return "" if self.wrapped is None else self.wrapped.judged(row)

    def _evidence(self, row: int) -> str:
        yet = ", by too few people to lift it yet" if round(self.held_back[row]) > 0 else ""
        counts = {f"for this query{yet}": (self.looks[row], self.choices[row])}
        counts |= {f"for *{name}*": both for name, both in self.similar[row].items()}
        found = [words for where, both in counts.items() if (words := _counted(*both, where))]
        return f"chosen {', '.join(found)}" if found else ""


def _counted(looks: float, choices: float, where: str) -> str:
    """Return looks and choices in words; empty if there is less than one."""
    times = max(round(choices), 0)
    seen = max(round(looks), times)  # looks are expected ones, and who chose has looked
    return (
        ""
        if not seen
        else f"{times} {'time' if times == 1 else 'times'} in {seen} {'look' if seen == 1 else 'looks'} {where}"
    )


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
    explained = []
    for position, known in enumerate(fields_around(queries, without, scores, wrapped, names)):
        rows = slice(queries.offsets[position], queries.offsets[position + 1])
        explained.append(
            ChoiceExplanation(
                **known,
                looks=own.looks[rows],
                choices=own.choices[rows],
                held_back=(Totals.zeros(queries.n_rows) if own.few is None else own.few).choices[rows],
                similar=list(similar[position]) or [{} for _ in range(rows.stop - rows.start)],
            )
        )
    return named(explained, names, queries)
