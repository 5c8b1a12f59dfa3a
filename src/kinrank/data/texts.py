"""Texts and vectors of queries given by the caller: by query id, or in order of first appearance."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError

QueryVectors = Mapping[Any, ArrayLike] | ArrayLike

VECTORS = "vector"
"""The query column of vectors."""


def align_vectors(queries: QuerySet, query_vectors: QueryVectors) -> Float32:
    """Return the vector of each query, in the order of `queries`.

    Vectors are a mapping from query id, a data frame indexed by query id, or an array with one row per query, in
    order of first appearance.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [2.0]], qid=["b", "a"])
    >>> align_vectors(queries, {"a": [0.0, 1.0], "b": [1.0, 0.0]}).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if hasattr(query_vectors, "columns"):  # a data frame, indexed by query id
        frame: Any = query_vectors
        query_vectors = dict(zip(frame.index.tolist(), frame.to_numpy(), strict=True))
    rows: Any = query_vectors
    if isinstance(query_vectors, Mapping):
        rows = [_look_up(query_vectors, qid) for qid in queries.qid.tolist()]
    try:
        vectors = np.asarray(rows, dtype=np.float32)
    except ValueError as error:
        raise DataError(f"query_vectors must be numeric vectors of the same length: {error}") from None
    if vectors.ndim != 2 or len(vectors) != len(queries):
        raise DataError(
            f"query_vectors must have one row per query ({len(queries)}), in order of first appearance, got shape "
            f"{vectors.shape}"
        )
    complete = np.isfinite(vectors).all(axis=1)
    if not complete.all():
        query = queries.qid[np.argmin(complete)].item()
        raise DataError(f"the vector of query {query!r} has missing values: replace it")
    return vectors


def _look_up(query_vectors: Mapping[Any, ArrayLike], qid: Any) -> ArrayLike:
    try:
        return query_vectors[qid]
    except KeyError:
        raise DataError(
            f"query_vectors has no vector for query {qid!r}: pass one per query, under the same id (7 and '7' are "
            "different ids)"
        ) from None


QueryTexts = Mapping[Any, str] | Sequence[str] | NDArray[Any]

TEXT = "text"
"""The query column that holds them."""


def align_texts(queries: QuerySet, query_text: QueryTexts) -> NDArray[np.str_]:
    """Return the text of each query, in the order of `queries`.

    Texts are a mapping from query id, or one per query in order of first appearance.

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
