"""Votes as tables: thumbs, citations, choices and chat logs from other systems, and what a memory exports.

A table has a row for each vote: a column with the question, one with the document (or a list of them, as in a log of
answers with their sources), and, if there are any, what was said of it, by whom, and when. Columns are found by their
names.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from kinrank.data.delimited import SEPARATORS, read_delimited, table_suffix, write_delimited
from kinrank.data.files import PathLike, atomic_writer, open_bytes
from kinrank.data.parquet import read_parquet_table
from kinrank.errors import DataError, FileFormatError, ParameterError
from kinrank.memory.ledger import SKIPPED

QUESTION, DOCUMENT, VOTE, USER, PERSON, TIME, SHOWN = COLUMNS = (
    *("question", "document", "vote", "user", "person", "time", "shown"),
)
FILES = ".csv, .tsv, .jsonl, .ndjson or .parquet"
_NAMES: dict[str, tuple[str, ...]] = {
    QUESTION: ("question", "query", "prompt", "user_query", "search_query", "input", "user_message", "text"),
    DOCUMENT: (
        *("document", "doc_id", "document_id", "documents", "citations", "cited", "sources", "source", "answer_id"),
        *("tool", "intent", "answer", "url", "page", "result", "item", "object_id"),
    ),
    VOTE: (
        *("vote", "thumb", "thumbs", "feedback", "rating", "liked", "helpful", "chosen", "clicked", "accepted", "used"),
        *("action", "action_name", "kind", "score"),
    ),
    USER: (
        "user",
        "user_id",
        "client",
        "client_id",
        "visitor",
        "session",
        "session_id",
        "conversation_id",
        "thread_id",
    ),
    PERSON: ("person",),
    TIME: ("time", "timestamp", "created_at", "date", "day", "datetime"),
    SHOWN: ("shown", "hits", "results", "retrieved", "candidates", "response_hit_ids"),
}
_KINDS = {"chosen": "chosen", "click": "chosen", "clicked": "chosen", "accepted": "chosen", "used": "chosen"}
_KINDS |= {"cited": "cited", "citations": "cited", "sources": "cited", "liked": "liked", "disliked": "disliked"}
_KINDS[SKIPPED] = SKIPPED
_GOOD = {"1", "+1", "true", "yes", "y", "up", "like", "good", "positive", "helpful", "thumbs_up", "thumb_up", "👍"}
_BAD = {"-1", "false", "no", "n", "down", "dislike", "bad", "negative", "unhelpful", "thumbs_down", "thumb_down", "👎"}
_NEITHER = {"", "none", "null", "nan", "shown", "impression", "view"}
_IN_OBJECTS = ("id", "doc_id", "document_id", "document", "url", "source", "name", "title")
_DAY = 86_400.0


class Said(NamedTuple):
    """A vote, as a table has it."""

    question: str
    document: str
    kind: str
    """As `kinrank.Memory.learn` calls it: "liked", "disliked", "chosen" or "cited"; see also `SKIPPED`."""
    user: str | None
    person: int | None
    """The number of somebody whose name an exported table does not have."""
    time: float | None
    """Seconds since 1970."""
    shown: tuple[str, ...] = ()
    """The documents that were shown, in this order."""


@dataclass
class VoteTable:
    """The votes of a file, and what was found in it."""

    votes: list[Said]
    columns: dict[str, str]
    """The name of the column of each kind in `COLUMNS`."""
    fingerprint: str
    """The same for files with the same content."""
    left_out: Counter[str] = field(default_factory=Counter)
    """How many rows say nothing, by reason."""


def read_votes(path: PathLike, columns: Mapping[str, str] | None = None) -> VoteTable:
    r"""Read votes from a file (.csv, .tsv, .jsonl, .ndjson or .parquet).

    Parameters
    ----------
    path
        The file.
    columns
        The names of columns that are not found by themselves, such as ``{"document": "answer"}``.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "thumbs.csv"
    >>> _ = path.write_text("query,doc_id,thumb,user\nreset password,account,up,ann\nopening hours,billing,down,bob\n")
    >>> table = read_votes(path)
    >>> [(vote.question, vote.document, vote.kind) for vote in table.votes]
    [('reset password', 'account', 'liked'), ('opening hours', 'billing', 'disliked')]
    """
    rows = _rows(path)
    names = list(dict.fromkeys(name for row in rows[:1000] for name in row))
    found = find_columns(names, columns or {}, path)
    missing = [name for name in (QUESTION, DOCUMENT) if name not in found]
    if missing:
        raise DataError(
            f"{path}: no column for the {missing[0]} among {names}: name it, as in --columns {missing[0]}=COLUMN"
        )
    table = VoteTable([], found, hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16])
    negative = _has_negative(rows, found.get(VOTE))
    for number, row in enumerate(rows):
        _read_row(table, row, negative, f"{path}, row {number + 1:,}")
    return table


def find_columns(names: Iterable[str], given: Mapping[str, str], path: PathLike) -> dict[str, str]:
    """Return which column has what, by their names; columns that are given must be there."""
    names = list(names)
    unknown = set(given) - set(COLUMNS)
    if unknown:
        raise ParameterError(f"unknown column {min(unknown)!r}: the columns of votes are {', '.join(COLUMNS)}")
    absent = [name for name in given.values() if name not in names]
    if absent:
        raise DataError(f"{path}: no column {absent[0]!r} among {names}: correct the name")
    by_name = {name.strip().lower().replace(" ", "_"): name for name in reversed(names)}
    found = dict(given)
    for what, candidates in _NAMES.items():
        free = (by_name[name] for name in candidates if name in by_name and by_name[name] not in found.values())
        column = next(free, None)
        if what not in found and column is not None:
            found[what] = column
    return found


def _read_row(table: VoteTable, row: Mapping[str, Any], negative: bool, where: str) -> None:
    columns = table.columns
    question = _text(row.get(columns[QUESTION]))
    documents = _documents(row.get(columns[DOCUMENT]))
    kind = _kind(row, columns, negative, where)
    reason = "no question" if not question else "no document" if not documents else "no vote" if not kind else ""
    if reason:
        table.left_out[reason] += 1
        return
    user = _text(row.get(columns[USER])) or None if USER in columns else None
    person = row.get(columns[PERSON]) if PERSON in columns else None
    number = None if person in (None, "") else int(str(person))
    seconds = _seconds(row.get(columns[TIME]), where) if TIME in columns else None
    shown = tuple(_documents(row.get(columns[SHOWN]))) if SHOWN in columns else ()
    table.votes += [Said(question, document, kind, user, number, seconds, shown) for document in documents]


def _kind(row: Mapping[str, Any], columns: Mapping[str, str], negative: bool, where: str) -> str:
    """Return what a row says: a kind of vote, or nothing."""
    if VOTE not in columns:
        return _KINDS.get(columns[DOCUMENT].lower(), "chosen")
    column = columns[VOTE]
    value = _text(row.get(column)).lower().removesuffix(".0").replace(" ", "_")
    of_column = _KINDS.get(column.lower(), "liked")
    if value in _KINDS:
        return _KINDS[value]
    if value in _GOOD:
        return of_column
    if value in _BAD:
        return "disliked" if of_column == "liked" else ""
    if value == "0":  # of +1, 0 and -1, or of those who chose or not, it is no vote
        return "" if negative or of_column != "liked" else "disliked"
    if value in _NEITHER:
        return ""
    raise DataError(
        f"{where}: {row.get(column)!r} in column {column!r} is no vote: write up and down, 1 and -1, or chosen, cited, "
        "liked and disliked"
    )


def _has_negative(rows: Iterable[Mapping[str, Any]], column: str | None) -> bool:
    return column is not None and any(_text(row.get(column)).startswith("-1") for row in rows)


def _documents(value: Any) -> list[str]:
    """Return the documents of a cell: one, or a list of ids or of objects with one."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        try:
            value = json.loads(value)
        except ValueError:
            return [value.strip()]
    if isinstance(value, list | tuple):
        return [name for each in value for name in _documents(each)]
    if isinstance(value, Mapping):
        value = next((value[name] for name in _IN_OBJECTS if value.get(name) not in (None, "")), None)
    name = _text(value)
    return [name] if name else []


def _text(value: Any) -> str:
    return "" if value is None else str(value).strip()


def _seconds(value: Any, where: str) -> float | None:
    """Return a time in seconds since 1970: a date, or a number of seconds, milliseconds or days."""
    if value is None or value == "":
        return None
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if hasattr(value, "toordinal"):
        return float((value.toordinal() - datetime(1970, 1, 1).toordinal()) * _DAY)
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise DataError(
                f"{where}: {text!r} is no time: write 2026-03-01T12:00:00Z, or seconds since 1970"
            ) from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return number / 1000 if number > 1e11 else number * _DAY if number < 1e6 else number


def _rows(path: PathLike) -> list[dict[str, Any]]:
    """Return the rows of a file."""
    file = Path(path)
    if not file.is_file():
        raise DataError(f"{path}: no such file: check the path")
    suffix = table_suffix(path)
    rows: list[dict[str, Any]]
    if suffix in (".jsonl", ".ndjson"):
        rows = list(_json_rows(path))
    elif suffix in SEPARATORS:
        names = read_delimited(path).column_names
        rows = read_delimited(path, as_text=names).to_pylist()
    elif suffix == ".parquet":
        rows = read_parquet_table(path).to_pylist()
    else:
        raise DataError(f"{path}: votes are read from {FILES}: convert the file")
    return rows


def _json_rows(path: PathLike) -> Iterator[dict[str, Any]]:
    with open_bytes(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:
                raise FileFormatError(path, number, f"no JSON ({error}): write one object per line") from None
            if not isinstance(row, dict):
                raise FileFormatError(path, number, f"expected an object, got {row!r}: write one object per line")
            yield row


def write_votes(votes: Iterable[Said], path: PathLike) -> int:
    """Write votes to a file that `read_votes` reads back, and return how many there were."""
    suffix = table_suffix(path)
    written = list(votes)
    # The number of a person has no name in it, and so does the table.
    rows = [
        {QUESTION: vote.question, DOCUMENT: vote.document, VOTE: vote.kind, PERSON: vote.person, TIME: vote.time}
        for vote in written
    ]
    if suffix in (".jsonl", ".ndjson"):
        with atomic_writer(path) as stream:
            stream.writelines(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)
    elif suffix in SEPARATORS or suffix == ".parquet":
        types = {name: pa.string() for name in (QUESTION, DOCUMENT, VOTE)} | {PERSON: pa.int64(), TIME: pa.float64()}
        table = pa.Table.from_pylist(rows, pa.schema(types))
        if suffix == ".parquet":
            pq.write_table(table, path, compression="zstd")
        else:
            write_delimited(table, path)
    else:
        raise DataError(f"{path}: votes are written to {FILES}: choose one of these names")
    return len(written)
