"""Hashes of clients, and signatures of the lists that they were shown, by keys that are replaced every month."""

from __future__ import annotations

import hashlib
import hmac

from kinrank.serve.events.store import PERIOD, EventStore


class ClientHashes:
    """Hashes client ids with a random key for each period of 30 days, which all replicas share.

    A client so counts as one within a period. When the key of a period is deleted, nobody can tell any more which
    client a hash belongs to.

    Parameters
    ----------
    store
        Where the keys are.
    secret
        Mixed into every hash, so that the database alone does not tell whether a given client is in it.
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
