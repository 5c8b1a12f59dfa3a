"""Families of queries: near-duplicates, by letters or by meaning, which splits keep together.

A family is a *star*: of the queries that are in none yet, the one with the most near-duplicates is its center, and its
near-duplicates are its members (Aslam, Pelekhov and Rus, 2004). So families do not chain: any two members are near the
same center. Connected components would put 3,207 of the 4,647 queries of GOV.UK into one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numba
import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from kinrank.arrays import Float32, Int64
from kinrank.data.hashes import IdHashes, query_keys
from kinrank.kin.letters import FAMILY, QueryIndex
from kinrank.kin.vectors import VectorIndex

IN_MEANING = 0.8
"""Queries whose vectors have a larger cosine are near-duplicates, whatever their letters."""
_AT_ONCE = 1 << 23  # cosines in memory


def families_of(texts: Iterable[Any], vectors: ArrayLike | None = None, above: float = FAMILY) -> Int64:
    """Return the family of each query: the position of its first member.

    Parameters
    ----------
    texts
        The texts, such as the query column text.
    vectors
        A vector of each query. Then those whose vectors are near are near-duplicates, too.
    above
        Texts with a higher similarity are near-duplicates.

    Examples
    --------
    >>> families_of(["frozen cast", "heat", "Frozen  cast"]).tolist()
    [0, 1, 0]
    >>> families_of(["car", "banana", "automobile"], [[1.0, 0.1], [0.0, 1.0], [1.0, 0.0]]).tolist()
    [0, 1, 0]
    """
    listed = np.array([str(text) for text in texts], dtype=np.str_)
    if not len(listed):
        return np.empty(0, dtype=np.int64)
    by_meaning = None if vectors is None else VectorIndex().fit(vectors)
    return families_in(QueryIndex().fit(listed.tolist()), by_meaning, query_keys(listed), above)


def families_in(letters: QueryIndex, vectors: VectorIndex | None, keys: IdHashes, above: float = FAMILY) -> Int64:
    """Return the families of queries in indexes; those with the same key are in one."""
    first, number = np.unique(keys, return_index=True, return_inverse=True)[1:]
    pairs = [letters.take(first).near_pairs(above)]
    if vectors is not None:
        pairs.append(_near_in_meaning(vectors.vectors_[first]))
    one, two = np.hstack(pairs)
    near = sparse.csr_array(
        (np.ones(2 * len(one), dtype=np.bool_), (np.r_[one, two], np.r_[two, one])), (len(first),) * 2
    )
    sizes = np.diff(near.indptr)
    center = _stars(near.indptr, near.indices, np.lexsort((first, -sizes)))[number]
    members: Int64 = np.full(len(first), len(keys))
    np.minimum.at(members, center, np.arange(len(keys)))
    return np.asarray(members[center])


def _near_in_meaning(vectors: Float32) -> tuple[Int64, Int64]:
    """Return the positions of all pairs of vectors of unit length that are near."""
    step = max(1, _AT_ONCE // max(len(vectors), 1))
    found = [np.empty((2, 0), dtype=np.int64)]
    for start in range(0, len(vectors), step):
        one, two = np.nonzero(vectors[start : start + step] @ vectors[: start + step].T > IN_MEANING)
        found.append(np.stack([one + start, two])[:, two < one + start])
    one, two = np.hstack(found)
    return one, two


@numba.njit(cache=True, nogil=True)
def _stars(offsets, near, order):  # type: ignore[no-untyped-def]
    """Return the center of each query, which is taken as a center in the given order if it has none."""
    center = np.full(len(order), -1, dtype=np.int64)
    for own in order:
        if center[own] < 0:
            center[own] = own
            for other in near[offsets[own] : offsets[own + 1]]:
                if center[other] < 0:
                    center[other] = own
    return center
