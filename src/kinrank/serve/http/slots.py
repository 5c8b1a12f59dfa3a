"""What requests hold while they are handled: slots and bytes of the process, and a share of them per key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kinrank.serve.http.errors import HttpError

KEY_SHARE = 0.75
"""Share of the slots that one key may hold."""
WAITING_SHARE = 0.5
"""How many requests of one key may wait for their body or for a revision, as a share of the slots."""
_OVERLOADED = "too many requests at once: try again in a moment"


class Slots:
    """Counts what requests hold. All methods run in the event loop.

    Parameters
    ----------
    limit
        Requests that are handled at a time. One that waits for its client or for judgments is not handled.
    max_bytes
        Bytes of bodies that are held at a time.
    """

    def __init__(self, limit: int, max_bytes: int) -> None:
        self.limit = limit
        self.max_bytes = max_bytes
        self.in_flight = 0
        self.bytes = 0
        self.by_key: Counter[str | None] = Counter()
        self.waiting: Counter[str | None] = Counter()

    @property
    def is_full(self) -> bool:
        """Whether a further request is rejected."""
        return self.in_flight >= self.limit

    @contextmanager
    def hold(self, key: str | None) -> Iterator[Hold]:
        """Count a request for its key until the block ends. None, without keys, has no share."""
        if key is not None and self.by_key[key] >= KEY_SHARE * self.limit:
            raise HttpError(503, "overloaded", f"too many requests with the key {key!r} at once: try again in a moment")
        held = Hold(self, key)
        self.by_key[key] += 1
        try:
            yield held
        finally:
            self.by_key[key] -= 1
            self.bytes -= held.bytes
            held.resume()


class Hold:
    """What one request holds; see `Slots.hold`."""

    def __init__(self, slots: Slots, key: str | None) -> None:
        self._slots = slots
        self._key = key
        self._waits = False
        self.bytes = 0
        self.on_wait: Callable[[], None] = lambda: None
        """Called when the request begins to wait."""

    def take(self, n_bytes: int) -> None:
        """Take bytes until the request ends. Raise an `HttpError` if the process holds too many."""
        if self._slots.bytes + n_bytes > self._slots.max_bytes:
            raise HttpError(503, "overloaded", "too many bytes of requests at once: try again in a moment")
        self._slots.bytes += n_bytes
        self.bytes += n_bytes

    def wait(self) -> bool:
        """Give the slot to others while the request waits. Return False if too many of its key wait already."""
        slots = self._slots
        if not self._waits:
            if slots.waiting[self._key] >= WAITING_SHARE * slots.limit:
                return False
            slots.waiting[self._key] += 1
            slots.in_flight -= 1
            self._waits = True
            self.on_wait()
        return True

    def resume(self) -> None:
        """Take a slot again."""
        if self._waits:
            self._slots.waiting[self._key] -= 1
            self._slots.in_flight += 1
            self._waits = False

    def go_on(self) -> None:
        """Take a slot again after a wait. Raise an `HttpError` if there is none left."""
        waited = self._waits
        self.resume()
        if waited and self._slots.in_flight > self._slots.limit:
            raise HttpError(503, "overloaded", _OVERLOADED)
