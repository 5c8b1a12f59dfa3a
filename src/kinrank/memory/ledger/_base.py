"""What both stores have in common: the tables, and all statements on them."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kinrank.arrays import Int64
from kinrank.data.texts import normalize_text
from kinrank.errors import NewerFormatError, StoreError
from kinrank.memory.ledger._group import Group
from kinrank.memory.ledger._tombstones import Tombstones, salted

Execute = Callable[..., list[tuple[Any, ...]]]
"""Runs a statement with ``?`` for each further argument, and returns its rows."""

DAY = 86_400.0
SKIPPED = "skipped"
"""The kind of a vote that counts only while the person has said nothing else."""
UNDO = "undo"
_BATCH = 2_000  # rows that one transaction deletes
_APPENDED = 500  # entries of one transaction
_AT_ONCE = 500  # values of one statement
_BEFORE_ALL = -(2**63)  # below all ids of questions, but for one in 2**64
_READ = 50_000  # rows that become an array at once
_KEPT = 100_000  # changes after which a reader reads everything again
LIST_DAYS = 7
"""Days for which lists are known."""
_MOST_LISTS = 1_000_000

_KEY = "tenant TEXT NOT NULL, id BIGINT NOT NULL, seq BIGINT NOT NULL"
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        # The last number of each tenant. Its row is locked by all who write, so that changes come in order.
        "CREATE TABLE memory_history (tenant TEXT PRIMARY KEY, seq BIGINT NOT NULL)",
        # One row for each transaction: which change its last number was (after a dump is restored, other changes get
        # the same numbers), and the questions of which it deleted votes.
        "CREATE TABLE memory_commit (tenant TEXT NOT NULL, seq BIGINT NOT NULL, mark BIGINT NOT NULL, deleted TEXT, "
        "PRIMARY KEY (tenant, seq))",
        f"CREATE TABLE memory_question ({_KEY}, text TEXT NOT NULL, encoder TEXT NOT NULL, vector {{bytes}}, "
        "PRIMARY KEY (tenant, id))",
        "CREATE INDEX memory_question_by_seq ON memory_question (tenant, seq)",
        f"CREATE TABLE memory_document ({_KEY}, name TEXT NOT NULL, PRIMARY KEY (tenant, id))",
        "CREATE INDEX memory_document_by_seq ON memory_document (tenant, seq)",
        "CREATE TABLE memory_vote (tenant TEXT NOT NULL, seq BIGINT NOT NULL, question BIGINT NOT NULL, "
        "document BIGINT NOT NULL, person BIGINT NOT NULL, day INTEGER NOT NULL, kind TEXT NOT NULL, "
        "amount INTEGER NOT NULL, good INTEGER NOT NULL, source TEXT NOT NULL, event TEXT NOT NULL, "
        "PRIMARY KEY (tenant, seq))",
        "CREATE INDEX memory_vote_by_question ON memory_vote (tenant, question, document, person)",
        "CREATE INDEX memory_vote_by_document ON memory_vote (tenant, document, question, person)",
        "CREATE INDEX memory_vote_by_person ON memory_vote (tenant, person, question, document)",
        "CREATE INDEX memory_vote_by_day ON memory_vote (tenant, day)",
        "CREATE UNIQUE INDEX memory_vote_by_event ON memory_vote (tenant, source, event, document, person) "
        "WHERE event <> ''",
        "CREATE TABLE memory_pair (tenant TEXT NOT NULL, question BIGINT NOT NULL, other BIGINT NOT NULL, "
        "seq BIGINT NOT NULL, similarity DOUBLE PRECISION NOT NULL, PRIMARY KEY (tenant, question, other))",
        "CREATE INDEX memory_pair_by_other ON memory_pair (tenant, other)",
        "CREATE INDEX memory_pair_by_seq ON memory_pair (tenant, seq)",
        "CREATE TABLE memory_list (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, made BIGINT NOT NULL, person BIGINT, "
        "question TEXT NOT NULL, documents TEXT NOT NULL)",
        "CREATE INDEX memory_list_by_time ON memory_list (tenant, made)",
        "CREATE INDEX memory_list_by_person ON memory_list (tenant, person)",
        "CREATE TABLE memory_forgotten (id TEXT PRIMARY KEY)",
    ),
    # What makes the vectors of a tenant's questions, and the vector of a probe text by which it is known again.
    ("CREATE TABLE memory_encoder (tenant TEXT PRIMARY KEY, name TEXT NOT NULL, probe {bytes} NOT NULL)",),
)
"""The statements that lead from one version of the tables to the next. Append only."""
_SETTINGS = "CREATE TABLE IF NOT EXISTS memory_setting (name TEXT PRIMARY KEY, value TEXT NOT NULL)"


class Said(NamedTuple):
    """What somebody said of a document."""

    document: str
    kind: str
    """Such as "liked"; see `SKIPPED`."""
    amount: int
    good: int


@dataclass(frozen=True)
class Entry:
    """What one person said of the documents of a question, at once."""

    question: str
    person: int
    """See `Ledger.person`; nobody in particular if negative."""
    said: Sequence[Said]
    source: str = ""
    """Where it comes from."""
    event: str = ""
    """What the source calls it: the same event of a person counts once. Empty: it is no such event."""
    encoder: str = ""
    vector: bytes | None = None
    kin: Sequence[tuple[int, float]] = ()
    """The ids of questions that it is compared with, and how similar they are."""
    day: int | None = None
    """The day since 1970 on which it was said; None: today."""


class Vote(NamedTuple):
    """What somebody said of a document for a question, as it counts now."""

    question: str
    document: str
    kind: str
    """Such as "liked"; see `SKIPPED`."""
    person: int
    day: int
    """Days since 1970."""


class KnownQuestion(NamedTuple):
    """A question, and how much is known of it."""

    text: str
    votes: int
    documents: int
    people: int
    """Those with a name."""
    day: int
    """The last day on which somebody said something of it, since 1970."""


class MadeBy(NamedTuple):
    """What makes the vectors of questions."""

    name: str
    probe: bytes
    """The vector of a probe text, as float32."""


class Cursor(NamedTuple):
    """How far a reader has read."""

    seq: int = 0
    mark: int = 0


class Question(NamedTuple):
    """A known question."""

    id: int
    text: str
    encoder: str
    vector: bytes | None


class Votes(NamedTuple):
    """Votes in the order in which they came."""

    question: Int64
    document: Int64
    person: Int64
    said: Int64
    """0 for what was only skipped."""
    amount: Int64
    good: Int64

    @classmethod
    def of(cls, rows: Iterable[tuple[int, ...]]) -> Votes:
        """Return arrays of rows, not all of which need be in memory at once."""
        rows, parts = iter(rows), [np.empty((0, len(cls._fields)), dtype=np.int64)]
        while some := list(islice(rows, _READ)):
            parts.append(np.array(some, dtype=np.int64))
        return cls(*np.ascontiguousarray(np.concatenate(parts).T))


class Changes(NamedTuple):
    """What a reader has not seen yet."""

    cursor: Cursor
    again: bool
    """Whether this is everything there is: what the reader knew may be gone."""
    restored: bool
    """Whether that is because this database is another one than the reader has read, such as an older copy of it."""
    questions: list[Question]
    documents: list[tuple[int, str]]
    votes: Votes
    pairs: list[tuple[int, int, float]]
    deleted: list[int]
    """Questions of which votes were deleted; all votes and pairs that are left of them are among the others."""


@dataclass(frozen=True)
class Selection:
    """Which votes to forget: those of a person, on a document, on a question, and before a day."""

    person: int | None = None
    document: int | None = None
    question: int | None = None
    day: int | None = None

    def conditions(self) -> tuple[str, list[int]]:
        """Return what rows have in common, and the values of it."""
        given = {"person = ?": self.person, "document = ?": self.document, "question = ?": self.question}
        given["day < ?"] = self.day
        named = {condition: value for condition, value in given.items() if value is not None}
        return " AND ".join(named), list(named.values())


@dataclass(frozen=True)
class List:
    """Documents that were handed out for a question, so that votes can name their list."""

    id: str
    question: str
    person: int | None
    documents: str = field(repr=False)


class Ledger(ABC):
    """Votes of all tenants in a database. An object may be used by several threads.

    Two connections are open at most: one writes, one reads.
    """

    folder: Path | None
    """Where files are kept that must outlive the database."""

    def __init__(self, address: str, folder: Path | None) -> None:
        self.address = address
        self.folder = folder
        self._group: Group[tuple[str, Entry | List]] = Group(self._store)
        self._key = b""
        self._tombstones = Tombstones(folder)
        self._recovering = threading.Lock()

    # --- what a store is --------------------------------------------------------------------------------------------

    polls = False
    """Whether to look for news takes long enough that a reader had better do it in another thread."""
    types: dict[str, str]
    """How the store calls the types that have no common name."""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Execute]:
        """Run statements on one state of the database, which never waits for those who write."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Execute]:
        """Run statements, all or none; they are durable at the end."""

    @abstractmethod
    def version(self) -> object:
        """Return a value that changes with the database; cheap."""

    @abstractmethod
    def iterate(self, statement: str, *values: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement, which may be many, inside of `reading`."""

    @abstractmethod
    def close(self) -> None:
        """Close both connections."""

    def cleaned(self) -> None:  # noqa: B027
        """Overwrite what was deleted, as far as the store can."""

    # --- the tables -------------------------------------------------------------------------------------------------

    def _prepare(self, execute: Execute, exists: bool) -> bool:
        """Read the settings, and return whether the tables are there."""
        rows = execute("SELECT name, value FROM memory_setting") if exists else []
        settings: dict[str, str] = {name: value for name, value in rows}  # noqa: C416
        written = int(settings.get("format", 0))
        if written > len(MIGRATIONS):
            raise NewerFormatError(f"{self} was written by a newer kinrank (format {written}): upgrade kinrank")
        self._key = bytes.fromhex(settings.get("key", ""))
        return written == len(MIGRATIONS)

    def _migrate(self, execute: Execute) -> None:
        """Run the statements that the database lacks; others that would do the same must be kept out."""
        execute(_SETTINGS)
        execute("INSERT INTO memory_setting VALUES ('format', '0') ON CONFLICT DO NOTHING")
        execute("INSERT INTO memory_setting VALUES ('key', ?) ON CONFLICT DO NOTHING", secrets.token_hex(32))
        [(written,)] = execute("SELECT value FROM memory_setting WHERE name = 'format'")
        for statements in MIGRATIONS[int(written) :]:
            for statement in statements:
                execute(statement.format(**self.types))
        execute("UPDATE memory_setting SET value = ? WHERE name = 'format'", str(len(MIGRATIONS)))
        self._prepare(execute, exists=True)

    # --- names ------------------------------------------------------------------------------------------------------

    def person(self, user: object) -> int:
        """Return the number under which votes of a person are stored: a hash with a key that lies in the ledger."""
        return self._hash("person", str(user)) & 0x7FFF_FFFF_FFFF_FFFF

    def document(self, name: str) -> int:
        """Return the number of a document."""
        return self._hash("document", name)

    def question(self, text: str) -> int:
        """Return the number of a question: the same for spellings that differ in case and spaces only."""
        return self._hash("question", normalize_text(text))

    def _hash(self, what: str, text: str) -> int:
        digest = hashlib.blake2b(
            text.encode(errors="surrogatepass"), digest_size=8, key=self._key, person=what.encode()
        )
        return int.from_bytes(digest.digest(), "big", signed=True)

    # --- writing ----------------------------------------------------------------------------------------------------

    def append(self, tenant: str, entry: Entry) -> None:
        """Store what somebody said; it is durable when this returns.

        What several threads say meanwhile is stored in one transaction.
        """
        self._group.add((tenant, entry))

    def append_all(self, tenant: str, entries: Iterable[Entry]) -> None:
        """Store what was said elsewhere, in transactions of many."""
        entries = iter(entries)
        while some := list(islice(entries, _APPENDED)):
            self._store([(tenant, entry) for entry in some])

    def add_list(self, tenant: str, handed_out: List) -> None:
        """Keep a list for some days."""
        self._group.add((tenant, handed_out))

    def _store(self, batch: Sequence[tuple[str, Entry | List]]) -> None:
        today = int(time.time() // DAY)
        with self.writing() as execute:
            for tenant in sorted({tenant for tenant, _ in batch}):  # sorted, so that no two wait for each other
                own = [given for each, given in batch if each == tenant]
                self._store_entries(execute, tenant, today, [each for each in own if isinstance(each, Entry)])
                self._store_lists(execute, tenant, [each for each in own if isinstance(each, List)])

    def _store_entries(self, execute: Execute, tenant: str, today: int, entries: Sequence[Entry]) -> None:
        if not entries:
            return
        seq = self._reserve(execute, tenant, sum(len(entry.said) for entry in entries))
        questions: dict[int, tuple[Any, ...]] = {}
        documents: dict[int, tuple[Any, ...]] = {}
        votes, pairs = [], []
        for entry in entries:
            question = self.question(entry.question)
            vector = (entry.encoder, entry.vector)
            questions.setdefault(question, (tenant, question, seq + 1, entry.question, *vector))
            pairs += [(tenant, question, other, seq + 1, similarity) for other, similarity in entry.kin]
            for name, kind, amount, good in entry.said:
                seq += 1
                document = self.document(name)
                documents.setdefault(document, (tenant, document, seq, name))
                day = today if entry.day is None else entry.day
                row = (tenant, seq, question, document, entry.person, day, kind, amount, good)
                votes.append((*row, entry.source, entry.event))
        _insert(execute, "memory_question", list(questions.values()))
        _insert(execute, "memory_document", list(documents.values()))
        _insert(execute, "memory_vote", votes)
        _insert(execute, "memory_pair", pairs)
        self._commit(execute, tenant, seq)

    def _reserve(self, execute: Execute, tenant: str, n: int) -> int:
        """Keep others of this tenant out until the end of the transaction, and return the last number before n new."""
        count = "UPDATE memory_history SET seq = seq + ? WHERE tenant = ? RETURNING seq"
        found = execute(count, n, tenant)
        if not found:
            execute("INSERT INTO memory_history VALUES (?, 0) ON CONFLICT DO NOTHING", tenant)
            found = execute(count, n, tenant)
        return int(found[0][0]) - n

    def _commit(self, execute: Execute, tenant: str, seq: int, deleted: Iterable[int] | None = None) -> None:
        questions = None if deleted is None else json.dumps(sorted(deleted))
        execute("INSERT INTO memory_commit VALUES (?, ?, ?, ?)", tenant, seq, secrets.randbits(62), questions)
        if secrets.randbelow(1000) == 0:
            execute("DELETE FROM memory_commit WHERE tenant = ? AND seq < ?", tenant, seq - _KEPT)

    def _store_lists(self, execute: Execute, tenant: str, lists: Sequence[List]) -> None:
        now = int(time.time())
        rows = [(each.id, tenant, now, each.person, each.question, each.documents) for each in lists]
        _insert(execute, "memory_list", rows)
        if rows and secrets.randbelow(1000) < len(rows):
            execute(
                "DELETE FROM memory_list WHERE tenant = ? AND (made < ? OR made < (SELECT made FROM memory_list "
                f"WHERE tenant = ? ORDER BY made DESC LIMIT 1 OFFSET {_MOST_LISTS}))",
                *(tenant, now - LIST_DAYS * int(DAY), tenant),
            )

    def retract(self, tenant: str, question: int, documents: Sequence[int], person: int | None) -> int:
        """Take back the votes of a person on documents of a question, and return how many there were.

        For nobody in particular, the latest vote of such is taken back for each document.
        """
        whose = "person < 0" if person is None else "person = ?"
        values = [tenant, question, *documents, *([] if person is None else [person])]
        if not documents:
            return 0
        with self.writing() as execute:
            seq = self._reserve(execute, tenant, len(documents))
            rows = execute(
                "SELECT document, person, kind, amount, seq FROM memory_vote WHERE tenant = ? AND question = ? AND "
                f"document IN ({_marks(documents)}) AND {whose}",
                *values,
            )
            latest = {document: who for (document, who), amount in _current(rows).items() if amount}
            today = int(time.time() // DAY)
            undone = [
                (tenant, seq + number, question, document, who, today, UNDO, 0, 0, "", "")
                for number, (document, who) in enumerate(latest.items(), start=1)
            ]
            _insert(execute, "memory_vote", undone)
            self._commit(execute, tenant, seq + len(documents))
        return len(undone)

    # --- forgetting -------------------------------------------------------------------------------------------------

    def forget(self, tenant: str, selection: Selection) -> int:
        """Delete votes, and return how many there were. What is left without a vote is deleted, too.

        That this is to be forgotten is written to a file first. So a call that was killed is finished when the ledger
        is opened again, and a dump that is restored brings nobody back.
        """
        with self.reading() as execute:
            found = execute("SELECT seq FROM memory_history WHERE tenant = ?", tenant)
        last = int(found[0][0]) if found else 0
        name = self._tombstones.add(tenant, selection, last)
        counted = self._delete(tenant, selection, last)
        with self.writing() as execute:
            execute("INSERT INTO memory_forgotten VALUES (?) ON CONFLICT DO NOTHING", name)
        self.cleaned()
        return counted

    def recover(self) -> None:
        """Forget again what was forgotten, if this database does not know that: it is a dump that was restored."""
        with self._recovering:
            missing = self._tombstones.read()
            if not missing:
                return
            with self.reading() as execute:
                done = {name for (name,) in execute("SELECT id FROM memory_forgotten")}
            for stone in missing:
                if stone["id"] not in done:
                    for selection in self._meant(stone):
                        self._delete(stone["tenant"], selection, stone["seq"])
                    with self.writing() as execute:
                        execute("INSERT INTO memory_forgotten VALUES (?) ON CONFLICT DO NOTHING", stone["id"])
                    self.cleaned()

    def _meant(self, stone: dict[str, Any]) -> list[Selection]:
        """Return what a tombstone is about: it has another hash of it, which only this database can tell."""
        values: dict[str, Any] = {"day": stone["day"]}
        for what in ("person", "document", "question"):
            if stone[what] is not None:
                with self.reading() as execute:
                    rows = execute(f"SELECT DISTINCT {what} FROM memory_vote WHERE tenant = ?", stone["tenant"])
                known = [number for (number,) in rows if salted(stone["salt"], number) == stone[what]]
                if not known:
                    return []
                values[what] = known[0]
        return [Selection(**values)]

    def _delete(self, tenant: str, selection: Selection, last: int) -> int:
        """Delete what is selected among the votes up to a number, in batches; return how many votes there were."""
        conditions, values = selection.conditions()
        which = f"tenant = ? AND {conditions} AND +seq <= ?"  # the plus: SQLite must look at the other index first
        counted, before = 0, set[tuple[Any, ...]]()
        while True:
            with self.writing() as execute:
                seq = self._reserve(execute, tenant, 1) + 1
                rows = execute(
                    "SELECT question, document, person, kind, amount, seq FROM memory_vote "
                    f"WHERE {which} LIMIT {_BATCH}",
                    *(tenant, *values, last),
                )
                self._delete_rows(execute, tenant, seq, rows)
                if len(rows) < _BATCH:
                    self._delete_lists(execute, tenant, selection)
            current = {name for name, amount in _current(rows, 3).items() if amount}
            counted += len(current - before)
            before = current
            if len(rows) < _BATCH:
                return counted

    def _delete_rows(self, execute: Execute, tenant: str, seq: int, rows: Sequence[tuple[Any, ...]]) -> None:
        questions, documents = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
        _among(execute, "DELETE FROM memory_vote WHERE tenant = ? AND seq IN ({})", tenant, [row[5] for row in rows])
        for table, numbers in (("question", questions), ("document", documents)):
            _among(
                execute,
                f"DELETE FROM memory_{table} WHERE tenant = ? AND id IN ({{}}) AND NOT EXISTS (SELECT 1 FROM "
                f"memory_vote AS v WHERE v.tenant = memory_{table}.tenant AND v.{table} = memory_{table}.id)",
                *(tenant, numbers),
            )
        for column in ("question", "other"):
            _among(
                execute,
                f"DELETE FROM memory_pair WHERE tenant = ? AND {column} IN ({{}}) AND NOT EXISTS (SELECT 1 FROM "
                f"memory_question AS q WHERE q.tenant = memory_pair.tenant AND q.id = memory_pair.{column})",
                *(tenant, questions),
            )
        self._commit(execute, tenant, seq, questions)

    def _delete_lists(self, execute: Execute, tenant: str, selection: Selection) -> None:
        if selection.person is not None:
            execute("DELETE FROM memory_list WHERE tenant = ? AND person = ?", tenant, selection.person)
        if selection.day is not None:
            execute("DELETE FROM memory_list WHERE tenant = ? AND made < ?", tenant, selection.day * int(DAY))

    # --- vectors ----------------------------------------------------------------------------------------------------

    def encoder(self, tenant: str) -> MadeBy | None:
        """Return what makes the vectors of a tenant; None if that is not known."""
        with self.reading() as execute:
            rows = execute("SELECT name, probe FROM memory_encoder WHERE tenant = ?", tenant)
        return MadeBy(rows[0][0], bytes(rows[0][1])) if rows else None

    def set_encoder(self, tenant: str, made_by: MadeBy) -> None:
        """Store what makes the vectors of a tenant, unless something is stored."""
        with self.writing() as execute:
            _insert(execute, "memory_encoder", [(tenant, *made_by)])

    def texts(self, tenant: str) -> list[tuple[int, str]]:
        """Return the number and text of each question."""
        with self.reading() as execute:
            rows = execute("SELECT id, text FROM memory_question WHERE tenant = ? ORDER BY seq", tenant)
        return [(number, text) for number, text in rows]

    def replace_vectors(self, tenant: str, made_by: MadeBy | None, vectors: Iterable[tuple[int, bytes]]) -> None:
        """Store other vectors of questions, at once; those that are not given are left without one.

        All readers read everything again.
        """
        with self.writing() as execute:
            seq = self._reserve(execute, tenant, 1) + 1
            execute("UPDATE memory_question SET vector = NULL, encoder = '' WHERE tenant = ?", tenant)
            for number, vector in vectors:
                execute(
                    "UPDATE memory_question SET vector = ?, encoder = ? WHERE tenant = ? AND id = ?",
                    *(vector, "" if made_by is None else made_by.name, tenant, number),
                )
            execute("DELETE FROM memory_encoder WHERE tenant = ?", tenant)
            _insert(execute, "memory_encoder", [] if made_by is None else [(tenant, *made_by)])
            execute("DELETE FROM memory_commit WHERE tenant = ?", tenant)
            self._commit(execute, tenant, seq)

    # --- reading ----------------------------------------------------------------------------------------------------

    def since(self, tenant: str, cursor: Cursor) -> Changes:
        """Return what has changed since, or everything if that is not known."""
        with self.reading() as execute:
            commits = execute(
                "SELECT seq, mark, deleted FROM memory_commit WHERE tenant = ? AND seq >= ? ORDER BY seq",
                *(tenant, cursor.seq),
            ) if cursor.seq else []  # fmt: skip
            again = not commits or commits[0][:2] != cursor
            start = 0 if again else cursor.seq
            head = commits[-1:] if not again else execute(
                "SELECT seq, mark FROM memory_commit WHERE tenant = ? ORDER BY seq DESC LIMIT 1", tenant
            )  # fmt: skip
            reached = Cursor(*head[0][:2]) if head else Cursor()
            deleted = sorted({each for _, _, text in commits[1:] if text for each in json.loads(text)}) * (not again)
            new = (tenant, start)
            select = (
                "SELECT question, document, person, CASE WHEN kind = 'skipped' THEN 0 ELSE 1 END, amount, good "
                "FROM memory_vote WHERE tenant = ? AND "
            )
            if reached == cursor:
                return Changes(reached, False, False, [], [], Votes.of([]), [], [])
            pair = "SELECT question, other, similarity FROM memory_pair WHERE tenant = ? AND"
            pairs = execute(f"{pair} seq > ?", *new)
            left: list[tuple[Any, ...]] = []
            for some in _parts(deleted):
                which = _marks(some)
                left += execute(f"{select}question IN ({which}) ORDER BY +seq", tenant, *some)
                for column in ("question", "other"):
                    pairs += execute(f"{pair} {column} IN ({which}) AND +seq <= ?", tenant, *some, start)
            gone = set(deleted)
            votes = self.iterate(f"{select}seq > ? ORDER BY seq", *new)
            questions = (
                "SELECT id, text, encoder, vector FROM memory_question WHERE tenant = ? AND seq > ? ORDER BY seq"
            )
            oldest = execute("SELECT min(seq) FROM memory_commit WHERE tenant = ?", tenant)[0][0]
            return Changes(
                reached,
                again,
                again and cursor.seq > 0 and (oldest is None or oldest <= cursor.seq),
                [Question(*row) for row in self.iterate(questions, *new)],
                execute("SELECT id, name FROM memory_document WHERE tenant = ? AND seq > ? ORDER BY seq", *new),
                Votes.of(row for rows in (left, (r for r in votes if r[0] not in gone)) for row in rows),
                list(dict.fromkeys(pairs)),
                deleted,
            )

    def common(self, tenant: str, cursors: Sequence[Cursor]) -> int:
        """Return the last number of what a reader has passed that is part of the history of this database; else 0."""
        with self.reading() as execute:
            for cursor in sorted(cursors, reverse=True):
                where = "SELECT 1 FROM memory_commit WHERE tenant = ? AND seq = ? AND mark = ?"
                if execute(where, tenant, *cursor):
                    return cursor.seq
        return 0

    def votes(self, tenant: str, question: int | None = None) -> Iterator[Vote]:
        """Yield the votes that count, on all questions or on one; those of a question in the order in which they came.

        Between some thousand of them, others can read and write.
        """
        said = f"CASE WHEN kind = '{SKIPPED}' THEN 0 ELSE 1 END"
        statement = (
            "SELECT q.text, d.name, v.kind, v.person, v.day FROM (SELECT *, row_number() OVER (PARTITION BY question, "
            f"document, person ORDER BY {said} DESC, seq DESC) AS place FROM memory_vote WHERE tenant = ? AND question "
            "BETWEEN ? AND ?) AS v JOIN memory_question AS q ON q.tenant = v.tenant AND q.id = v.question "
            "JOIN memory_document AS d ON d.tenant = v.tenant AND d.id = v.document "
            "WHERE v.place = 1 AND v.amount > 0 ORDER BY v.question, v.seq"
        )
        page = "SELECT id FROM memory_question WHERE tenant = ? AND id > ? ORDER BY id LIMIT ?"
        last = _BEFORE_ALL
        while True:
            with self.reading() as execute:
                ids = [question] if question is not None else [row[0] for row in execute(page, tenant, last, _AT_ONCE)]
                rows = execute(statement, tenant, ids[0], ids[-1]) if ids else []
            yield from (Vote(*row) for row in rows)
            if question is not None or not ids:
                return
            last = ids[-1]

    def questions(self, tenant: str, containing: str, n: int) -> list[KnownQuestion]:
        """Return the questions of which something was said last, of those with a text in them, latest first."""
        pattern = normalize_text(containing).replace("!", "!!").replace("%", "!%").replace("_", "!_")
        with self.reading() as execute:
            rows = execute(
                "SELECT q.text, count(*), count(DISTINCT v.document), "
                "count(DISTINCT CASE WHEN v.person >= 0 THEN v.person END), max(v.day) FROM memory_vote AS v "
                "JOIN memory_question AS q ON q.tenant = v.tenant AND q.id = v.question WHERE v.tenant = ? AND "
                f"v.amount > 0 AND v.kind <> '{SKIPPED}' AND lower(q.text) LIKE ? ESCAPE '!' "
                "GROUP BY q.id, q.text ORDER BY max(v.seq) DESC LIMIT ?",
                *(tenant, f"%{pattern}%", n),
            )
        return [KnownQuestion(*row) for row in rows]

    def counts(self, tenant: str) -> list[tuple[int, str, int]]:
        """Return how many votes of each kind came on each day since 1970."""
        with self.reading() as execute:
            rows = execute(
                "SELECT day, kind, count(*) FROM memory_vote WHERE tenant = ? AND amount > 0 GROUP BY day, kind "
                "ORDER BY day, kind",
                tenant,
            )
        return [(int(day), str(kind), int(n)) for day, kind, n in rows]

    def people(self, tenant: str) -> int:
        """Return how many people with a name have said something."""
        with self.reading() as execute:
            [(n,)] = execute(
                "SELECT count(DISTINCT person) FROM memory_vote WHERE tenant = ? AND person >= 0 AND amount > 0", tenant
            )
        return int(n)

    @abstractmethod
    def size(self) -> int:
        """Return the number of bytes that the database takes, of all tenants."""

    def find_list(self, tenant: str, name: str) -> List | None:
        """Return a list by its id; None if it is not known."""
        with self.reading() as execute:
            rows = execute(
                "SELECT id, question, person, documents FROM memory_list WHERE tenant = ? AND id = ?", tenant, name
            )
        return List(*rows[0]) if rows else None

    def __str__(self) -> str:
        return self.address

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(f"{self}: the memory cannot be used ({str(error).partition(chr(10))[0]}): check the database")


def _current(rows: Iterable[Sequence[Any]], width: int = 2) -> dict[tuple[Any, ...], int]:
    """Return the amount that counts for each name, the first `width` values of rows, followed by kind, amount and seq.

    What was said last counts, and what was skipped only if nothing else was said.
    """
    found: dict[tuple[Any, ...], tuple[bool, int, int]] = {}
    for row in rows:
        name, (kind, amount, seq) = tuple(row[:width]), row[width : width + 3]
        found[name] = max(found.get(name, (False, -1, 0)), (kind != SKIPPED, seq, amount))
    return {name: amount for name, (_, _, amount) in sorted(found.items(), key=lambda each: each[1][1])}


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _parts(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _AT_ONCE):
        yield values[start : start + _AT_ONCE]


def _among(execute: Execute, statement: str, tenant: str, values: Sequence[Any]) -> None:
    for some in _parts(values):
        execute(statement.format(_marks(some)), tenant, *some)


def _insert(execute: Execute, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Insert rows; those that are there stay."""
    for some in _parts(rows):
        values = ", ".join([f"({_marks(some[0])})"] * len(some))
        execute(f"INSERT INTO {table} VALUES {values} ON CONFLICT DO NOTHING", *(v for row in some for v in row))


def folder_of(given: str | os.PathLike[str] | None) -> Path | None:
    """Return the folder for files that must outlive the database."""
    return None if given is None else Path(given)
