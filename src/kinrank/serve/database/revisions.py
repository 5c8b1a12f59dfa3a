"""Revisions and marks, by which processes find out what others have changed.

A *stream* is a sequence of changes, such as the judgments of a model. Every change gets the next revision of its
stream. A change is one transaction that locks the revision until it is committed, so revisions become visible in order
and without gaps: a reader at revision r has seen every change up to r, and no later commit can add one below it. Every
change also gets a random mark, by which a reader finds out that an older copy of the database was restored.
"""

from __future__ import annotations

import secrets

from kinrank.errors import OtherHistoryError
from kinrank.serve.database.base import Execute


def revision_of(execute: Execute, stream: str) -> tuple[int, int]:
    """Return the latest revision of a stream, and the one up to which it was compacted."""
    found = execute("SELECT revision, compacted FROM kinrank_revisions WHERE model = ?", (stream,))
    return (int(found[0][0]), int(found[0][1])) if found else (0, 0)


def mark_of(execute: Execute, stream: str, revision: int) -> str:
    """Return the mark of a revision; empty if an earlier version of kinrank wrote it."""
    found = execute("SELECT mark FROM kinrank_marks WHERE model = ? AND revision = ?", (stream, revision))
    return str(found[0][0]) if found else ""


def next_revision(execute: Execute, stream: str) -> int:
    """Count up the revision. Its row stays locked until the transaction ends, so changes commit in this order."""
    execute("INSERT INTO kinrank_revisions VALUES (?, 0, 0) ON CONFLICT (model) DO NOTHING", (stream,))
    counted = execute(
        "UPDATE kinrank_revisions SET revision = revision + 1 WHERE model = ? RETURNING revision", (stream,)
    )
    revision = int(counted[0][0])
    execute("INSERT INTO kinrank_marks VALUES (?, ?, ?)", (stream, revision, secrets.token_hex(4)))
    return revision


def undo_revision(execute: Execute, stream: str, revision: int) -> int:
    """Take back the revision of this transaction, because nothing changed, and return the one before."""
    execute("DELETE FROM kinrank_marks WHERE model = ? AND revision = ?", (stream, revision))
    execute("UPDATE kinrank_revisions SET revision = ? WHERE model = ?", (revision - 1, stream))
    return revision - 1


def check_history(execute: Execute, stream: str, since: int, mark: str, what: str) -> int:
    """Return the latest revision. Raise `OtherHistoryError` if `since` with this mark is not in its history."""
    revision = revision_of(execute, stream)[0]
    if since > revision or (since and mark and mark_of(execute, stream, since) != mark):
        raise OtherHistoryError(
            f"{what} are at revision {revision}, but others up to {since} were learned before: this is another "
            "database, or an older copy of it"
        )
    return revision


def end_of_page(execute: Execute, table: str, model: str, since: int, revision: int, rows: int) -> int:
    """Return up to which revision the next rows of a model reach, about as many as given; at most `revision`."""
    last = execute(
        f"SELECT revision FROM {table} WHERE model = ? AND revision > ? ORDER BY revision LIMIT 1 OFFSET ?",  # noqa: S608
        (model, since, rows - 1),
    )
    return int(last[0][0]) if last else revision
