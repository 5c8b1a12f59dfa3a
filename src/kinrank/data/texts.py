"""Query texts given by the caller: by query id, or in order of first appearance."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.data.queryset import QuerySet
from kinrank.data.vectors import VECTORS
from kinrank.errors import DataError

QueryTexts = Mapping[Any, str] | Sequence[str] | NDArray[Any]

TEXT = "text"
"""The query column that holds them."""


def has_text(queries: QuerySet) -> bool:
    """Return whether queries can be described by their text: they have texts, or vectors already."""
    return TEXT in queries.query_columns or VECTORS in queries.query_columns


def align_texts(queries: QuerySet, query_text: QueryTexts) -> NDArray[np.str_]:
    """Return the text of each query, in the order of `queries`.

    Parameters
    ----------
    queries
        The queries.
    query_text
        A mapping from query id to text, or one text per query in order of first appearance.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [2.0]], qid=["b", "a"])
    >>> align_texts(queries, {"a": "iron man", "b": "toy story"}).tolist()
    ['toy story', 'iron man']
    """
    texts: list[Any] = (
        [query_text.get(qid) for qid in queries.qid.tolist()]
        if isinstance(query_text, Mapping)
        else [query_text]
        if isinstance(query_text, str)
        else list(query_text)
    )
    if len(texts) != len(queries):
        raise DataError(
            f"query_text must have one text per query ({len(queries)}), in order of first appearance, got {len(texts)}"
        )
    for qid, text in zip(queries.qid.tolist(), texts, strict=True):
        if not isinstance(text, str):
            raise DataError(f"query_text of query {qid!r} must be a str, got {text!r}: give every query its text")
    return np.array(texts, dtype=np.str_)


def normalize_text(text: str) -> str:
    """Return a query text as click logs compare it: without regard to case, spaces and Unicode form.

    Examples
    --------
    >>> normalize_text("  Toy   STORY ")
    'toy story'
    """
    return " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).lower().split())
