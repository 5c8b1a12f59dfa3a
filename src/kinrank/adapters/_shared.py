"""What the adapters share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kinrank.memory.memory import Document, Memory

D = TypeVar("D")
REASON = "kinrank_reason"
"""The metadata in which a document has the reason for its place. It quotes earlier questions of other people."""


def scores_of(values: Sequence[Any]) -> Sequence[float] | None:
    """Return the scores of hits; None if one of them has none: then their order counts.

    Examples
    --------
    >>> scores_of([0.7, 0.2]), scores_of([0.7, None])
    ([0.7, 0.2], None)
    """
    return values if all(isinstance(value, int | float) for value in values) else None


class Learns(Generic[D]):
    """Adapters learn from the documents of their framework."""

    if TYPE_CHECKING:  # pydantic would take it for a field of its own
        memory: Memory

    @staticmethod
    @abstractmethod
    def _known(document: D) -> Document:
        """Return a document as memory knows it."""

    @classmethod
    def _all_known(cls, documents: Iterable[D | str]) -> list[Document]:
        return [each if isinstance(each, str) else cls._known(each) for each in documents]

    def learn(
        self,
        question: str,
        shown: Iterable[D | str] = (),
        *,
        user: str | int | None = None,
        **said: Iterable[D | str],
    ) -> None:
        """Learn what one person did with an answer; documents may be given by their ids.

        Parameters
        ----------
        question
            The question.
        shown
            The documents that were shown, in this order.
        user
            Who it was; see `Memory.learn`.
        said
            The documents that were `chosen`, `cited`, `liked` or `disliked`.
        """
        documents = {how: self._all_known(given) for how, given in said.items()}
        self.memory.learn(question, self._all_known(shown), user=user, **documents)
