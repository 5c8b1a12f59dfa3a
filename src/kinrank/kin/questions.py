"""Known questions, in the order in which they were learned, found by their texts or by vectors of the caller.

What is found depends on the questions and their order alone: a memory that is opened again answers as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Self, TypeVar

import numpy as np

from kinrank.arrays import Float32, Int64, State
from kinrank.kin.known import KnownIndex
from kinrank.kin.letters import QueryIndex, Vocabulary
from kinrank.kin.vectors import VectorIndex

_COUNTED = 65_536  # questions after which the frequency of n-grams is not counted again
_LEAST = 0.03  # similarity below which questions have nothing in common
KnownT = TypeVar("KnownT", bound=KnownIndex)


class _Questions(Generic[KnownT]):
    """Questions in an index, which grows."""

    index: KnownT

    def __len__(self) -> int:
        return len(self.index)

    def nearest(self, question: Any, n: int) -> tuple[Int64, Float32]:
        """Return the positions and similarities of at most n similar questions, most similar first."""
        return self.near(self.index.describe([question]), n)

    def near(self, described: Any, n: int) -> tuple[Int64, Float32]:
        """Return those of a question that is described already."""
        places, similar = self.index.nearest(described, n)
        near = similar[0] > _LEAST
        return places[0, near].astype(np.int64), similar[0, near]


class TextQuestions(_Questions[QueryIndex]):
    """Questions by their character n-grams.

    The frequency of n-grams is counted again whenever the number of questions has doubled, up to 65,536.

    Examples
    --------
    >>> questions = TextQuestions()
    >>> questions.add(["how do I reset my password?", "opening hours"])
    >>> questions.nearest("password reset", 5)[0].tolist()
    [0]
    """

    def __init__(self) -> None:
        self.index = QueryIndex().fit([])
        self._texts: list[str] = []
        self._counted = 0

    def add(self, questions: Sequence[str]) -> None:
        """Add questions after the others."""
        self._texts += questions
        counted = min(1 << len(self._texts).bit_length() >> 1, _COUNTED)
        if counted == self._counted:
            self.index = self.index.add(questions)
        else:
            vocabulary, self._counted = Vocabulary.of(self._texts[:counted]), counted
            self.index = QueryIndex().of_terms(vocabulary, vocabulary.terms(self._texts))

    def get_state(self) -> State:
        """Return arrays that can be stored, without the texts."""
        return self.index.get_state() | {"counted": np.array(self._counted)}

    def set_state(self, state: State, texts: Sequence[str]) -> Self:
        """Restore questions from their texts and arrays, which may be memory-mapped; nothing is counted again."""
        self.index = QueryIndex().set_state(state)
        self._texts, self._counted = list(texts), int(state["counted"])
        return self


class VectorQuestions(_Questions[VectorIndex]):
    """Questions by vectors; those of zeros are not found.

    Examples
    --------
    >>> questions = VectorQuestions()
    >>> questions.add([[1.0, 0.0], [0.0, 2.0]])
    >>> [values.tolist() for values in questions.nearest([3.0, 0.0], 5)]
    [[0], [1.0]]
    """

    def __init__(self) -> None:
        self.index = VectorIndex()

    @property
    def width(self) -> int:
        """Length of a vector."""
        return self.index.width

    def add(self, questions: Sequence[Any]) -> None:
        """Add questions after the others."""
        self.index = self.index.add(questions)
