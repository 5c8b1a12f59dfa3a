"""Why a `PrecedentRanker` ranks the documents of a query as it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kinrank.rankers.wrapped_explanation import EvidenceExplanation

_NAMED = 2  # similar queries of the same grade that are named for a document


class Precedent(NamedTuple):
    """How a document was judged for a similar query."""

    query: str
    """The text of the query."""
    similarity: float
    """Between 0 and 1."""
    grade: float | None
    """None if the document was among its candidates, but not judged."""


@dataclass(frozen=True, eq=False)
class PrecedentExplanation(EvidenceExplanation):
    """How the documents of a query were judged for similar ones, and the order of the wrapped ranker without that."""

    precedents: list[list[Precedent]]
    """The precedents of each document, most similar query first."""
    best_grade: float
    """The best grade of the judged queries."""

    known: ClassVar[str] = "how its documents were judged for similar queries"
    unknown: ClassVar[str] = "no judgments for similar queries, so other features alone rank it"
    without: ClassVar[str] = "precedents"

    def judged(self, row: int) -> str:
        """Return in words how a document was judged for similar queries, and its rank without that."""
        return self._told(row)

    def _evidence(self, row: int) -> str:
        found = self.precedents[row]
        by_grade: dict[float, list[Precedent]] = {}
        for each in found:
            if each.grade is not None:
                by_grade.setdefault(each.grade, []).append(each)
        if by_grade:
            parts = [f"{self._grade(grade)} for {_named(each)}" for grade, each in by_grade.items()]
            return f"judged {', '.join(parts)}"
        return f"not judged, but a hit for {_named(found)}" if found else ""

    def _grade(self, grade: float) -> str:
        if self.best_grade == 1 and grade in (0, 1):
            return "relevant" if grade else "not relevant"
        return f"{grade:.3g} of {self.best_grade:g}"


def _named(found: list[Precedent]) -> str:
    """Return the texts of the most similar queries, and how many there are besides."""
    named = [f"*{each.query}* (similarity {each.similarity:.2f})" for each in found[:_NAMED]]
    return ", ".join(named) + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")
