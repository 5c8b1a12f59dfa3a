"""Why a document has its score: the similar questions that say something of it, and how much each counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

_ALL = 0.995  # of a score, from which it is said to be whole


class Similar(NamedTuple):
    """A known question that is like another one."""

    question: str
    letters: float
    """How similar their letters are, from 0 to 1."""
    meaning: float | None
    """The cosine of their vectors; None if one has none."""
    agreement: float
    """How likely both want the same, from 0 to 1."""

    @property
    def similarity(self) -> float:
        """By letters and, if it is known, by meaning, which counts twice."""
        return self.letters if self.meaning is None else (self.letters + 2.0 * self.meaning) / 3.0

    def __str__(self) -> str:
        meaning = "" if self.meaning is None else f", meaning {_short(self.meaning)}"
        letters = f"letters {_short(self.letters)}"
        return f"*{self.question}* ({letters}{meaning}, wants the same with {self.agreement:.0%})"


class Part(NamedTuple):
    """What a similar question says of a document."""

    similar: Similar
    votes_for: float
    votes_against: float
    share: float
    """How much of all that similar questions say is its vote for the document."""


@dataclass(frozen=True)
class Why:
    """Why a document has its score: what similar questions say of it."""

    document: str
    strength: float
    """How much of the score is theirs to say, from 0 to 1; the rest is the retriever's."""
    share: float
    """The share of their votes that the document has."""
    doubt: float
    """What votes against it leave of its score, from 0 to 1."""
    parts: list[Part]
    """The questions, those that count most first."""

    def __str__(self) -> str:
        if not self.parts:
            return f"{self.document}: no similar question says anything of it; the retriever's place counts"
        against = "none is against it" if self.doubt > _ALL else f"votes against it leave {self.doubt:.0%} of its score"
        first = (
            f"{self.document}: similar questions decide {self.strength:.0%} of its score; of their votes it has "
            f"{self.share:.0%}, and {against}"
        )
        return "\n".join([first, *(f"  {part.share:.0%}: {part.similar}: {_votes(part)}" for part in self.parts)])


def _short(value: float) -> str:
    return f"{value:.2f}".removeprefix("0")


def _votes(part: Part) -> str:
    said = ((part.votes_for, "for it"), (part.votes_against, "against it"))
    return ", ".join(f"{n:.3g} {'vote' if n == 1 else 'votes'} {how}" for n, how in said if n > 0)
