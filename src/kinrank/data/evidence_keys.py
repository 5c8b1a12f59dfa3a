"""The hashes by which evidence finds queries and documents."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.data.evidence_kernel import hash_ascii, hash_texts
from kinrank.data.id_hashes import IdHashes
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, normalize_text


def query_keys(texts: NDArray[Any]) -> IdHashes:
    """Return the hash of each query text, without regard to case, spaces and Unicode form."""
    hashes = hash_ascii(texts)
    if hashes is None:
        hashes = hash_texts(np.array([normalize_text(str(text)) for text in texts.tolist()], dtype=np.str_))
    return hashes


def keys_of(queries: QuerySet) -> IdHashes | None:
    """Return the hash of the text of each query; None without texts."""
    texts = queries.query_columns.get(TEXT)
    return None if texts is None else query_keys(texts)


def hashes_of(queries: QuerySet) -> tuple[IdHashes, IdHashes] | None:
    """Return the hashes of the texts of queries and of their documents; None without either."""
    keys = None if queries.doc_id is None else keys_of(queries)
    return None if keys is None or queries.doc_id is None else (keys, hash_texts(queries.doc_id))
