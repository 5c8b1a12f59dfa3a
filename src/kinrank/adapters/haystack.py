"""Memory as a component of Haystack (``pip install '.[haystack]'``).

::

    from kinrank import Memory
    from kinrank.adapters.haystack import MemoryRanker

    ranker = MemoryRanker(Memory("memory.db"))
    pipeline.add_component("memory", ranker)
    pipeline.connect("retriever.documents", "memory.documents")
    ranker.learn(question, documents, cited=documents[:1])
"""
# Haystack reads the types of `run` as they are: they must not become texts by `from __future__ import annotations`.

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Self

from kinrank.adapters import REASON, scores_of
from kinrank.memory.memory import Document as Known
from kinrank.memory.memory import Memory
from kinrank.registry import import_extra

import_extra("haystack", "haystack")
from haystack import Document, component, default_to_dict  # noqa: E402 - after the check


@component
class MemoryRanker:
    """Reorders documents by what people chose for similar questions.

    Documents get the new scores; ``kinrank_reason`` in their metadata is the reason. A pipeline is saved with the path
    of the memory, not with what is in it.

    Parameters
    ----------
    memory : Memory
        The memory.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    @component.output_types(documents=list[Document])
    def run(self, query: str, documents: list[Document]) -> dict[str, list[Document]]:
        """Return all documents, best first."""
        hits = self.memory.rerank(query, _known(documents), scores_of([document.score for document in documents]))
        found = [(documents[hit.place], hit) for hit in hits]
        return {"documents": [replace(d, score=hit.score, meta=d.meta | {REASON: hit.reason}) for d, hit in found]}

    def learn(
        self,
        question: str,
        shown: Iterable[Document | str] = (),
        *,
        user: str | int | None = None,
        **said: Iterable[Document | str],
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
        documents = {how: _known(given) for how, given in said.items()}
        self.memory.learn(question, _known(shown), user=user, **documents)

    def to_dict(self) -> dict[str, Any]:
        """Return what Haystack saves."""
        memory = self.memory
        settings: dict[str, Any] = default_to_dict(
            self, path=memory.path, people=memory.people, neighbors=memory.neighbors
        )
        return settings

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return what was saved."""
        return cls(Memory(**data["init_parameters"]))


def _known(documents: Iterable[Document | str]) -> list[Known]:
    return [
        each if isinstance(each, str) else each.id if each.content is None else (each.id, each.content)
        for each in documents
    ]
