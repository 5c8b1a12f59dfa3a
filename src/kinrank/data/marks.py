"""Ids of queries as numbers of one size, to compare very many of them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Marks = NDArray[np.uint64]


def text_marks(qid: NDArray[Any]) -> Marks:
    """64 bits for each id, by its hash as text: query 301 of a file is query "301" of a table.

    Examples
    --------
    >>> np.array_equal(text_marks(np.array([301, 7])), text_marks(np.array(["301", "7"])))
    True
    """
    digests = [hashlib.blake2b(str(each).encode(), digest_size=8).digest() for each in qid.tolist()]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)
