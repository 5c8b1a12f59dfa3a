"""The texts of judged queries and the titles of documents, by which explanations name them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

from numpy.typing import NDArray

from kinrank.arrays import State
from kinrank.data.hashes import NO_TEXTS, TextTable
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.store import nest, unnest

MOST_TITLES = 100_000
"""The number of documents whose titles a model keeps."""
_MOST_PARTS = 64


@dataclass(frozen=True, eq=False)
class Names:
    """The texts of queries and the titles of documents. Tables are built when a name is first looked up.

    Examples
    --------
    >>> import numpy as np
    >>> queries = QuerySet.from_arrays([[1.0]], qid=[7], doc_id=["a"], query_columns={"text": ["heat"]})
    >>> Names().added(queries).name_queries(np.array([7, 8])), Names().name_documents(queries.doc_id)
    (['heat', '8'], ['a'])
    """

    stored_texts: TextTable = NO_TEXTS
    stored_titles: TextTable = NO_TEXTS
    """Tables of a model folder, or of names that were looked up."""
    new_texts: tuple[tuple[NDArray[Any], NDArray[Any]], ...] = ()
    new_titles: tuple[tuple[NDArray[Any], NDArray[Any]], ...] = ()
    """Ids and names that came later."""

    def added(self, queries: QuerySet) -> Names:
        """Return these names and those of further queries and their candidates."""
        if len(self.new_texts) + len(self.new_titles) > _MOST_PARTS:
            return Names(self.texts, self.titles).added(queries)
        texts, titles = self.new_texts, self.new_titles
        text = queries.query_columns.get(TEXT)
        if text is not None and text.dtype.kind == "U":
            texts = (*texts, (queries.qid, text))
        if queries.doc_id is not None and queries.doc_title is not None:
            titles = (*titles, (queries.doc_id, queries.doc_title))
        return Names(self.stored_texts, self.stored_titles, texts, titles)

    @cached_property
    def texts(self) -> TextTable:
        """The texts of queries by id."""
        tables = (TextTable.of(ids, texts) for ids, texts in self.new_texts)
        return reduce(TextTable.joined, tables, self.stored_texts)

    @cached_property
    def titles(self) -> TextTable:
        """The titles of documents by id."""
        tables = (TextTable.of(ids, titles, MOST_TITLES) for ids, titles in self.new_titles)
        return reduce(TextTable.joined, tables, self.stored_titles)

    def name_queries(self, qid: NDArray[Any]) -> list[str]:
        """Return the text of each query, or its id if the text is unknown."""
        return [text or str(value) for text, value in zip(self.texts.find(qid), qid.tolist(), strict=True)]

    def name_documents(self, doc_id: NDArray[Any]) -> list[str]:
        """Return the title of each document, or its id if the title is unknown."""
        return [title or str(value) for title, value in zip(self.titles.find(doc_id), doc_id.tolist(), strict=True)]

    def get_state(self, kin: NDArray[Any] | None) -> State:
        """Return the titles, and the texts of the judged queries that explanations can name."""
        texts = {} if kin is None else self.texts.take(kin).get_state()
        return nest(texts=texts, titles=self.titles.get_state())

    @classmethod
    def from_state(cls, state: State) -> Names:
        """Restore from the arrays of `get_state`."""
        texts, titles = unnest(state, "texts"), unnest(state, "titles")
        return cls(TextTable.from_state(texts), TextTable.from_state(titles))
