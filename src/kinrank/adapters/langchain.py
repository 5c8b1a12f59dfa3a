"""Memory as a document compressor of LangChain (``pip install '.[langchain]'``).

::

    from kinrank import Memory
    from kinrank.adapters.langchain import MemoryCompressor

    compressor = MemoryCompressor(memory=Memory("memory.db"))
    documents = compressor.compress_documents(retriever.invoke(question), question)
    compressor.learn(question, documents, cited=documents[:1])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kinrank.adapters._shared import REASON, Learns, scores_of
from kinrank.memory.memory import Document as Known
from kinrank.memory.memory import Memory
from kinrank.registry import import_extra

import_extra("langchain_core", "langchain")
from langchain_core.documents import BaseDocumentCompressor, Document  # noqa: E402 - after the check
from pydantic import ConfigDict  # noqa: E402

_SCORE = "relevance_score"  # in which rerankers of LangChain store theirs


class MemoryCompressor(BaseDocumentCompressor, Learns[Document]):
    """Reorders documents by what people chose for similar questions.

    The scores of a reranker before it, ``relevance_score`` in the metadata, count if all documents have one, else their
    order. The new score takes its place; ``kinrank_reason`` is the reason.

    Attributes
    ----------
    memory
        The memory.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)
    memory: Memory

    def compress_documents(self, documents: Sequence[Document], query: str, callbacks: Any = None) -> list[Document]:
        """Return all documents, best first."""
        del callbacks
        scores = scores_of([document.metadata.get(_SCORE) for document in documents])
        hits = self.memory.rerank(query, self._all_known(documents), scores)
        found = [(documents[hit.place], {_SCORE: hit.score, REASON: hit.reason}) for hit in hits]
        return [document.model_copy(update={"metadata": document.metadata | said}) for document, said in found]

    @staticmethod
    def _known(document: Document) -> Known:
        """Return id and text; a document without an id is known by its text."""
        return (document.id, document.page_content) if document.id else document.page_content
