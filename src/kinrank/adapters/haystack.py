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

from dataclasses import replace
from typing import Any, Self

from kinrank.adapters._shared import REASON, Learns, scores_of
from kinrank.memory.memory import Document as Known
from kinrank.memory.memory import Memory
from kinrank.registry import import_extra

import_extra("haystack", "haystack")
from haystack import Document, component, default_to_dict  # noqa: E402 - after the check


@component
class MemoryRanker(Learns[Document]):
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
        scores = scores_of([document.score for document in documents])
        hits = self.memory.rerank(query, self._all_known(documents), scores)
        found = [(documents[hit.place], hit) for hit in hits]
        return {"documents": [replace(d, score=hit.score, meta=d.meta | {REASON: hit.reason}) for d, hit in found]}

    def to_dict(self) -> dict[str, Any]:
        """Return what Haystack saves."""
        memory = self.memory
        settings: dict[str, Any] = default_to_dict(
            self, path=memory.path, people=memory.people, neighbors=memory.neighbors
        )
        return settings

    @staticmethod
    def _known(document: Document) -> Known:
        return document.id if document.content is None else (document.id, document.content)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return what was saved."""
        return cls(Memory(**data["init_parameters"]))
