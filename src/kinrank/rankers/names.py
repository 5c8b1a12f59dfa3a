"""The texts of judged queries and the titles of documents, by which explanations name them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import State
from kinrank.data.id_hashes import hash_ids
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT
from kinrank.store import nest, unnest

LONGEST = 100
"""Texts and titles are cut after this many characters."""
MOST_TITLES = 100_000
"""The number of documents whose titles a model keeps."""


class TextTable:
    """Texts by id, found by the hash of the id; about 40 bytes each for short texts.

    Parameters
    ----------
    hashes
        The ids, hashed by `hash_ids`, ascending.
    ends
        Where each text ends among the bytes.
    utf8
        All texts, one after another.

    Examples
    --------
    >>> table = TextTable.of(np.array([7, 3, 7]), np.array(["heat", "alien", "heat"]))
    >>> table.find(np.array(["3", "5"])), len(table)
    (['alien', None], 2)
    """

    def __init__(self, hashes: NDArray[np.uint64], ends: NDArray[np.int64], utf8: NDArray[np.uint8]) -> None:
        self.hashes, self.ends, self.utf8 = hashes, ends, utf8

    @classmethod
    def of(cls, ids: NDArray[Any], texts: NDArray[Any], most: int | None = None) -> TextTable:
        """Return the first text of each id; empty texts are left out, and texts of more than `most` ids."""
        _, rows = np.unique(ids, return_index=True)
        rows = np.sort(rows)
        rows = rows[texts[rows] != ""][:most]
        hashes = hash_ids(ids[rows])
        order = np.argsort(hashes, kind="stable")
        return cls._of_encoded(hashes[order], [text[:LONGEST].encode() for text in texts[rows[order]].tolist()])

    @classmethod
    def _of_encoded(cls, hashes: NDArray[np.uint64], texts: list[bytes]) -> TextTable:
        ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return cls(hashes, ends, np.frombuffer(b"".join(texts), dtype=np.uint8))

    def __len__(self) -> int:
        return len(self.hashes)

    def _encoded(self, place: int) -> bytes:
        start = self.ends[place - 1] if place else 0
        return self.utf8[start : self.ends[place]].tobytes()

    def find(self, ids: NDArray[Any]) -> list[str | None]:
        """Return the text of each id, None for those without one."""
        places, known = self._find(hash_ids(ids))
        return [self._encoded(place).decode() if has else None for place, has in zip(places, known, strict=True)]

    def _find(self, hashes: NDArray[np.uint64]) -> tuple[list[int], list[bool]]:
        if not len(self):
            return [0] * len(hashes), [False] * len(hashes)
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self) - 1)
        return places.tolist(), (self.hashes[places] == hashes).tolist()

    def take(self, ids: NDArray[Any]) -> TextTable:
        """Return the texts of some ids only."""
        hashes = np.unique(hash_ids(ids))
        known = [(value, place) for value, place, has in zip(hashes, *self._find(hashes), strict=True) if has]
        found = np.array([value for value, _ in known], dtype=np.uint64)
        return self._of_encoded(found, [self._encoded(place) for _, place in known])

    def joined(self, newer: TextTable) -> TextTable:
        """Return all texts of both; the newer text of an id in both."""
        if not len(newer) or not len(self):
            return newer if len(newer) else self
        hashes, first = np.unique(np.concatenate([newer.hashes, self.hashes]), return_index=True)
        n = len(newer)
        texts = [newer._encoded(place) if place < n else self._encoded(place - n) for place in first.tolist()]
        return self._of_encoded(hashes, texts)

    def get_state(self) -> State:
        """Return the arrays."""
        return {"hashes": self.hashes, "ends": self.ends, "utf8": self.utf8} if len(self) else {}


_EMPTY = TextTable._of_encoded(np.empty(0, dtype=np.uint64), [])
_MOST_PARTS = 64


@dataclass(frozen=True, eq=False)
class Names:
    """The texts of queries and the titles of documents. Tables are built when a name is first looked up.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0]], qid=[7], doc_id=["a"], query_columns={"text": ["heat"]})
    >>> Names().added(queries).name_queries(np.array([7, 8])), Names().name_documents(queries.doc_id)
    (['heat', '8'], ['a'])
    """

    stored_texts: TextTable = _EMPTY
    stored_titles: TextTable = _EMPTY
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
        return cls(TextTable(**texts) if texts else _EMPTY, TextTable(**titles) if titles else _EMPTY)
