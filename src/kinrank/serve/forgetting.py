"""Which folders still hold what a forgotten client asked."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from kinrank import folder
from kinrank.data.hashes import IdHashes, query_keys
from kinrank.errors import ForeignFolderError
from kinrank.memory import evidence
from kinrank.rankers.names import Names
from kinrank.serve.database import Database
from kinrank.serve.database.rows import parts, placeholders
from kinrank.store import model


def asked_by(database: Database, clients: Collection[int]) -> list[int]:
    """Return the queries, by their hashes, that are stored of clients; call it before they are forgotten."""
    if not clients:
        return []
    marks = placeholders(clients)
    with database.reading() as execute:
        found = execute(
            f"SELECT query FROM kinrank_lists WHERE client IN ({marks}) UNION SELECT query FROM kinrank_votes "  # noqa: S608
            f"WHERE client IN ({marks})",
            (*clients, *clients),
        )
        asked = {row[0] for row in found}
        for client in clients:
            among = execute("SELECT query FROM kinrank_people WHERE people LIKE ?", (f"%[{client},%",))
            asked.update(row[0] for row in among)
    return sorted(asked)


def asked_by_few(database: Database, queries: Sequence[int], min_clients: int) -> IdHashes:
    """Return those of some queries that fewer clients have asked, as far as the database knows."""
    few = set(queries)
    for some in parts(queries):
        with database.reading() as execute:
            marks = placeholders(some)
            for table, enough in (
                ("kinrank_lists", "GROUP BY query HAVING count(DISTINCT client) >= ?"),
                ("kinrank_people", "AND asked >= ?"),
            ):
                known = execute(f"SELECT query FROM {table} WHERE query IN ({marks}) {enough}", (*some, min_clients))  # noqa: S608
                few -= {row[0] for row in known}
    return np.array(sorted(few), dtype=np.int64).view(np.uint64)


def held_queries(path: str | os.PathLike[str], queries: IdHashes) -> int:
    """Return how many of some queries, given by their hashes, a model folder or a folder of evidence holds.

    A model holds a query if one of its texts is that of the query: an id, a name, an example, or evidence of it.
    """
    place = Path(path)
    with suppress(ForeignFolderError):
        return int(np.isin(queries, evidence.Evidence.open(place).get_state()["query"]).sum())
    record = model.read_model(place)
    arrays = folder.read(place, model.KIND, verify=False)[1]
    texts = [np.unique(array.ravel()) for array in arrays.values() if array.dtype.kind == "U"]
    texts.append(np.array(Names.from_state(record.names).texts.all(), dtype=np.str_))
    known = [query_keys(some) for some in texts if len(some)]
    known += [array for name, array in arrays.items() if name.endswith("evidence.query")]
    return int(np.isin(queries, np.concatenate(known) if known else np.empty(0, dtype=np.uint64)).sum())
