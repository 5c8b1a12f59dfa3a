"""Hashes of clients, by keys that are replaced every month."""

from __future__ import annotations

import hashlib

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
        period = day // PERIOD
        key = self._keys.get(period)
        if key is None:
            key = self._keys[period] = self._store.client_key(period)
        return self._hash(client, key)

    def of_all_periods(self, client: str) -> list[int]:
        """Return the hashes of a client in every period whose key is stored."""
        return [self._hash(client, key) for key in self._store.client_keys().values()]

    def _hash(self, client: str, key: bytes) -> int:
        text = client.encode(errors="surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8, key=hashlib.sha256(key + self._secret).digest()).digest()
        return int.from_bytes(digest, signed=True)
