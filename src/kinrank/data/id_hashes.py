"""Hashes of query ids, to compare many ids in little memory."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

IdHashes = NDArray[np.uint64]


def hash_ids(qid: NDArray[Any]) -> IdHashes:
    """Return a 64-bit hash of each id as text, so that query 301 of a file equals query "301" of a table.

    Examples
    --------
    >>> np.array_equal(hash_ids(np.array([301, 7])), hash_ids(np.array(["301", "7"])))
    True
    """
    digests = [hashlib.blake2b(str(value).encode(), digest_size=8).digest() for value in qid.tolist()]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64, copy=False)
