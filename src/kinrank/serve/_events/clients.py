"""Clients: their hashes, the signatures of the lists that they were shown, and how they are forgotten."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from kinrank import folder
from kinrank.data.hashes import IdHashes, query_keys
from kinrank.errors import ForeignFolderError
from kinrank.memory import evidence
from kinrank.rankers._names import Names
from kinrank.serve._database import Database, parts, placeholders
from kinrank.serve._events.store import PERIOD, EventStore
from kinrank.store import model


class ClientHashes:
    """Hashes client ids with a random key for each period of 30 days, which all replicas share.

    A client so counts as one within a period. When the key of a period is deleted, nobody can tell any more which
    client a hash belongs to. The secret is mixed into every hash, so that the database alone does not tell whether
    a given client is in it.
    """

    def __init__(self, store: EventStore, secret: bytes = b"") -> None:
        self._store = store
        self._secret = secret
        self._keys: dict[int, bytes] = {}

    def __call__(self, client: str, day: int) -> int:
        """Return the hash of a client on a day, a 64-bit number."""
        return self._hash(client, self._key(day))

    def of_all_periods(self, client: str) -> list[int]:
        """Return the hashes of a client in every period whose key is stored."""
        return [self._hash(client, key) for key in self._store.client_keys().values()]

    def prepare(self, day: int) -> None:
        """Read the keys of a day and of the next one, so that `sign` need not wait for the database."""
        for each in (day, day + 1):
            self._key(each)

    def sign(self, query_id: str, client: str, day: int) -> str:
        """Return the id of a list with a signature that names its client; without one while the key is not known.

        What holds no key of the database cannot make such an id, so that it can report no list of another client.
        """
        key = self._keys.get(day // PERIOD)
        return query_id if key is None else f"{query_id}.{self._signature(query_id, client, key)}"

    def is_signed(self, query_id: str, client: str, day: int) -> bool:
        """Return whether a list was handed out with this id to this client, on this day or on one before."""
        name, _, signature = query_id.rpartition(".")
        keys = (self._key(each) for each in {day // PERIOD: day, (day - 1) // PERIOD: day - 1}.values())
        return any(hmac.compare_digest(signature.encode(), self._signature(name, client, key).encode()) for key in keys)

    def _key(self, day: int) -> bytes:
        period = day // PERIOD
        key = self._keys.get(period)
        if key is None:
            key = self._keys[period] = self._store.client_key(period)
        return key

    def _signature(self, query_id: str, client: str, key: bytes) -> str:
        text = f"{query_id}\0{client}".encode(errors="surrogatepass")
        own = hashlib.sha256(b"list" + key + self._secret).digest()  # another one than that of the hashes
        return hashlib.blake2b(text, digest_size=12, key=own).hexdigest()

    def _hash(self, client: str, key: bytes) -> int:
        text = client.encode(errors="surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8, key=hashlib.sha256(key + self._secret).digest()).digest()
        return int.from_bytes(digest, signed=True)


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
