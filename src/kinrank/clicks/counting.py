"""Count looks and choices of impressions: a pure function over whole partitions, in DuckDB.

A *cell* is a query, a document and a day. Each client has one vote in it: the mean over its impressions of the
document for that query on that day. A *look* is an impression, counted by how likely its rank is examined; a *choice*
is a click, or the value of an action, less what users click without being attracted.

What is estimated from the whole log, the `FirstPass`, is given. Everything is counted in whole numbers of `UNIT`, so
that neither the order of rows, nor threads, nor how a log is cut into partitions changes a bit of the result. All
impressions of a query on a day belong into one partition.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kinrank.arrays import Float64
from kinrank.clicks.examination import Examination
from kinrank.data.hashes import IdHashes, hash_arrow, query_keys

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

UNIT = 10**8
"""Looks and choices are whole numbers of 1 / UNIT."""
KEYS = "query, document, day"


@dataclass(frozen=True)
class FirstPass:
    """What counting has to know about the whole log, and what it is the same for all partitions of.

    Examples
    --------
    >>> first = FirstPass(slope=(UNIT, UNIT // 2), offset=(0, 0))
    >>> FirstPass.from_json(first.to_json()) == first
    True
    """

    slope: tuple[int, ...]
    offset: tuple[int, ...]
    """P(click) = slope α + offset by rank, from the first one, in whole numbers of `UNIT`. Ranks below do not count."""
    cascade: bool = False
    """Whether ranks below the last click of a list are not examined."""
    excluded: tuple[int, ...] = ()
    """Hashes of clients that do not count, such as bots."""

    @classmethod
    def of(cls, examination: Examination, excluded: IdHashes | None = None) -> FirstPass:
        """Return that of an examination of ranks."""
        slope, offset = examination.at(np.arange(1, int(examination.ranks[-1]) + 1))
        clients = () if excluded is None else tuple(np.unique(excluded).tolist())
        return cls(_fixed(slope), _fixed(offset), examination.model == "cascade", clients)

    @cached_property
    def version(self) -> str:
        """What names these values, and no others."""
        return hashlib.sha256(json.dumps([UNIT, self.to_json()]).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        """Return the values as JSON stores them."""
        return {"slope": self.slope, "offset": self.offset, "cascade": self.cascade, "excluded": self.excluded}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> FirstPass:
        """Return what `to_json` returned."""
        slope, offset, excluded = (tuple(stored[name]) for name in ("slope", "offset", "excluded"))
        return cls(slope, offset, stored["cascade"], excluded)


def _fixed(values: Float64) -> tuple[int, ...]:
    return tuple(np.rint(values * UNIT).astype(np.int64).tolist())


def create_functions(database: DuckDBPyConnection) -> None:
    """Create the functions ``text_hash`` and ``query_hash``, which hash as all of kinrank does."""
    for name, function in (("text_hash", _text_hashes), ("query_hash", _query_hashes)):
        database.create_function(name, function, ["VARCHAR"], "UBIGINT", type="arrow")


def create_cells(database: DuckDBPyConnection, impressions: str, first: FirstPass, *, by_client: bool = True) -> None:
    """Create the table ``cells`` from impressions: query, document, day, looks and choices.

    Parameters
    ----------
    database
        An open database.
    impressions
        The name of a relation with the columns list, query, document, client (hashes), day, rank (from 1), clicked and
        value, in whole numbers of `UNIT`. If its column ``alone`` is true, no other impression is of the same client,
        query, document and day: what is known of a whole list spares grouping its impressions by their clients.
    first
        What is known of the whole log. Its excluded clients are not among the impressions.
    by_client
        False: each impression is the vote of a client of its own.
    """
    look, choice = _by_rank(first.slope), f"value - {_by_rank(first.offset)}" if any(first.offset) else "value"
    seen, joined = look, ""
    if first.cascade:  # Users read from the top to their last click, and everything if they click nothing.
        seen = f"CASE WHEN rank <= coalesce(last, rank) THEN {look} ELSE 0 END"
        last = f"SELECT list, max(rank) AS last FROM {impressions} WHERE clicked GROUP BY list"
        joined = f"LEFT JOIN ({last}) USING (list)"
    votes = f"SELECT {KEYS}, looks, choices FROM weighed WHERE looks > 0"
    if by_client:
        votes += f"""
            AND alone UNION ALL
            SELECT {KEYS}, CAST(sum(looks) AS BIGINT) // count(*), CAST(sum(choices) AS BIGINT) // count(*)
            FROM weighed WHERE NOT alone GROUP BY {KEYS}, client HAVING sum(looks) > 0"""
    database.execute(f"""
        CREATE OR REPLACE TEMP TABLE cells AS
        WITH weighed AS (
            SELECT {KEYS}, client, alone, {seen} AS looks, CASE WHEN {look} > 0 THEN {choice} ELSE 0 END AS choices
            FROM {impressions} {joined}),
        votes AS ({votes})
        SELECT {KEYS}, CAST(sum(looks) AS BIGINT) AS looks, CAST(sum(choices) AS BIGINT) AS choices
        FROM votes GROUP BY {KEYS}""")


def _by_rank(values: tuple[int, ...]) -> str:
    cases = " ".join(f"WHEN {rank} THEN {value}" for rank, value in enumerate(values, start=1) if value)
    return f"CAST(CASE rank {cases} ELSE 0 END AS BIGINT)" if cases else "0"


def _text_hashes(texts: pa.ChunkedArray) -> pa.Array:
    return pa.array(hash_arrow(texts.combine_chunks())[0])


def _query_hashes(texts: pa.ChunkedArray) -> pa.Array:
    """Return the hashes of query texts, normalized; most are so already."""
    given = texts.combine_chunks()
    hashes, normal = hash_arrow(given)
    others = np.flatnonzero(~normal)
    if len(others):
        encoded = given.take(pa.array(others)).dictionary_encode()
        keys = query_keys(np.array(encoded.dictionary.to_pylist(), dtype=np.str_))
        hashes[others] = keys[encoded.indices.to_numpy()]
    return pa.array(hashes)
