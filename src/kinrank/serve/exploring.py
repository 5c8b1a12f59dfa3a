"""Which requests are ranked by a draw from what people may choose, in place of what they are expected to choose."""

from __future__ import annotations

import hashlib
from contextvars import ContextVar
from typing import NamedTuple


class Draw(NamedTuple):
    """A draw that ranks a request."""

    seed: int
    """Decides the draw."""
    propensity: float
    """The probability that a request is ranked by a draw."""


DRAW: ContextVar[Draw | None] = ContextVar("draw", default=None)
"""The draw that ranks the request; None for the expected rates of choices."""


def draw_for(query_id: str, share: float) -> Draw | None:
    """Return the draw that ranks a request, always the same one for an id; None for all but a share of the ids.

    Examples
    --------
    >>> sum(draw_for(str(number), 0.1) is not None for number in range(1000))
    100
    """
    if not share:
        return None
    digest = hashlib.blake2b(query_id.encode(errors="surrogatepass"), digest_size=16).digest()
    chosen = int.from_bytes(digest[:8]) < share * 2**64
    return Draw(int.from_bytes(digest[8:]), share) if chosen else None
