"""Memory as a document compressor of LangChain (``pip install '.[langchain]'``).

::

    from kinrank import Memory
    from kinrank.adapters.langchain import MemoryCompressor

    compressor = MemoryCompressor(memory=Memory("memory.db"))
    documents = compressor.compress_documents(retriever.invoke(question), question)
    compressor.learn(question, documents, cited=documents[:1])
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kinrank.adapters import REASON, scores_of
from kinrank.memory.memory import Document as Known
from kinrank.memory.memory import Memory
from kinrank.registry import import_extra

import_extra("langchain_core", "langchain")
from langchain_core.documents import BaseDocumentCompressor, Document  # noqa: E402 - after the check
from pydantic import ConfigDict  # noqa: E402

_SCORE = "relevance_score"  # in which rerankers of LangChain store theirs


class MemoryCompressor(BaseDocumentCompressor):
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
        hits = self.memory.rerank(query, _known(documents), scores)
        found = [(documents[hit.place], {_SCORE: hit.score, REASON: hit.reason}) for hit in hits]
        return [document.model_copy(update={"metadata": document.metadata | said}) for document, said in found]

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


def _known(documents: Iterable[Document | str]) -> list[Known]:
    """Return ids and texts; a document without an id is known by its text."""
    return [
        each if isinstance(each, str) else (each.id, each.page_content) if each.id else each.page_content
        for each in documents
    ]
