"""Where live judgments are kept: SQLite on one machine, PostgreSQL for several.

All processes that open the same address share one truth. See `JudgmentStore` for what a store promises.
"""

from __future__ import annotations

from kinrank.errors import ParameterError
from kinrank.registry import Registry
from kinrank.serve.judgment_store.base import Changes, JudgmentRow, JudgmentStore

__all__ = ["STORES", "Changes", "JudgmentRow", "JudgmentStore", "checkpoint_folder", "open_store"]

STORES = Registry(
    "judgment store",
    {
        "sqlite": "kinrank.serve.judgment_store.sqlite:SqliteStore",
        "postgresql": "kinrank.serve.judgment_store.postgresql:PostgresStore",
    },
)


def open_store(address: str) -> JudgmentStore:
    """Return the store at an address, ``sqlite:///PATH`` or ``postgresql://USER@HOST/DATABASE``.

    Nothing is connected yet: the database may be away when the service starts.

    Examples
    --------
    >>> open_store("judgments.log")
    Traceback (most recent call last):
    ...
    kinrank.errors.ParameterError: judgments must be sqlite:///PATH or postgresql://..., got 'judgments.log'
    """
    scheme, separator, _ = address.partition("://")
    if not separator or scheme not in STORES:
        raise ParameterError(f"judgments must be sqlite:///PATH or postgresql://..., got {address!r}")
    store: JudgmentStore = STORES[scheme](address)
    return store


def checkpoint_folder(address: str) -> str | None:
    """Return where models with the judgments of a store are kept by default; None without a lasting place.

    Examples
    --------
    >>> checkpoint_folder("sqlite:///judgments.db"), checkpoint_folder("postgresql://db/kinrank")
    ('judgments.db.checkpoints', None)
    """
    prefix = "sqlite:///"
    return f"{address.removeprefix(prefix)}.checkpoints" if address.startswith(prefix) else None
