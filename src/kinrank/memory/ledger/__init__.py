"""The ledger: who said what of which document for which question. The only writer of votes.

A ledger is a SQLite file, for one machine, or a PostgreSQL database, for a fleet. Rows are only added, until somebody
is forgotten. Readers follow it by its feed of changes; see `kinrank.memory.snapshot`.
"""

from __future__ import annotations

import os

from kinrank.data.files import redact_passwords
from kinrank.errors import ParameterError
from kinrank.memory.ledger._base import LIST_DAYS as LIST_DAYS
from kinrank.memory.ledger._base import SKIPPED as SKIPPED
from kinrank.memory.ledger._base import Changes as Changes
from kinrank.memory.ledger._base import Cursor as Cursor
from kinrank.memory.ledger._base import Entry as Entry
from kinrank.memory.ledger._base import KnownQuestion as KnownQuestion
from kinrank.memory.ledger._base import Ledger as Ledger
from kinrank.memory.ledger._base import List as List
from kinrank.memory.ledger._base import MadeBy as MadeBy
from kinrank.memory.ledger._base import Said as Said
from kinrank.memory.ledger._base import Selection as Selection
from kinrank.memory.ledger._base import Vote as Vote
from kinrank.memory.ledger._postgresql import PostgresLedger
from kinrank.memory.ledger._sqlite import SqliteLedger


def open_ledger(address: str | os.PathLike[str], folder: str | os.PathLike[str] | None = None) -> Ledger:
    """Return the ledger at an address, which is made if there is none.

    Parameters
    ----------
    address
        A path of a SQLite file, ``":memory:"``, or ``postgresql://USER@HOST/DATABASE``.
    folder
        Where the files are kept that must outlive the database; None: next to a SQLite file, and nowhere for
        PostgreSQL.

    Examples
    --------
    >>> ledger = open_ledger(":memory:")
    >>> ledger.append("", Entry("opening hours", ledger.person("ann"), [Said("contact", "liked", 20, 20)]))
    >>> changes = ledger.since("", Cursor())
    >>> changes.questions[0].text, changes.votes.amount.tolist()
    ('opening hours', [20])
    """
    place = os.fspath(address)
    if place.startswith(("postgresql://", "postgres://")):
        return PostgresLedger.shared(place, folder)
    if "://" in place:
        raise ParameterError(
            f"a memory is a path or postgresql://..., got {redact_passwords(place)!r}: pass one of these"
        )
    return SqliteLedger(place, folder)
