"""The contract of a ledger and of its readers, which each store must fulfill."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank import Memory
from kinrank.errors import NewerFormatError, ParameterError, StoreError
from kinrank.kin.vectors import unit_vectors
from kinrank.memory.ledger import SKIPPED, Cursor, Entry, Ledger, List, Said, Selection, open_ledger
from kinrank.memory.ledger import _base as base
from kinrank.memory.snapshot import Snapshot
from tests.memory.conftest import Place

LIKED, CHOSEN = ("liked", 20, 20), ("chosen", 10, 10)
TABLES = ("history", "commit", "question", "document", "vote", "pair", "list", "forgotten", "setting")


@pytest.fixture
def ledger(place: Place) -> Iterator[Ledger]:
    with closing(open_ledger(place.address, place.folder)) as opened:
        yield opened


def say(
    ledger: Ledger, question: str, user: Any, *documents: str, kind: Any = CHOSEN, tenant: str = "", **more: Any
) -> None:
    said = [Said(name, *kind) for name in documents]
    ledger.append(tenant, Entry(question, ledger.person(user), said, **more))


def votes(ledger: Ledger, tenant: str = "") -> list[tuple[str, str, float, float]]:
    """Return question, document, amount and good of each cell."""
    snapshot = Snapshot.of(ledger.since(tenant, Cursor()))
    return told(snapshot)


def told(snapshot: Snapshot) -> list[tuple[str, str, float, float]]:
    cells = snapshot.cells(range(snapshot.n_places))
    return sorted(
        (snapshot.texts[kin], str(snapshot.name(document)), amount, good)
        for kin, document, amount, good in zip(*(values.tolist() for values in cells), strict=True)
    )


def everything(ledger: Ledger) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables."""
    with ledger.reading() as execute:
        return {table: execute(f"SELECT * FROM memory_{table}") for table in TABLES}


# --- writing and following --------------------------------------------------------------------------------------------


def test_what_was_said_is_there_when_it_is_opened_again(ledger: Ledger, place: Place):
    say(ledger, "opening hours", "ann", "contact", "team")
    say(ledger, "Opening  HOURS", "bob", "contact", kind=LIKED)
    assert votes(ledger) == [("opening hours", "contact", 30, 30), ("opening hours", "team", 10, 10)]
    with closing(open_ledger(place.address, place.folder)) as again:
        assert votes(again) == votes(ledger)


def test_the_feed_has_each_change_once_and_in_order(ledger: Ledger):
    assert ledger.since("", Cursor()).cursor == Cursor()
    say(ledger, "one", "ann", "a", "b")
    first = ledger.since("", Cursor())
    assert (first.again, [each.text for each in first.questions], len(first.votes.question)) == (True, ["one"], 2)
    say(ledger, "two", "ann", "a")
    say(ledger, "one", "bob", "b")
    more = ledger.since("", first.cursor)
    assert (more.again, [each.text for each in more.questions], more.documents) == (False, ["two"], [])
    assert more.votes.question.tolist() == [ledger.question("two"), ledger.question("one")]
    assert more.votes.person.tolist() == [ledger.person("ann"), ledger.person("bob")]
    nothing = ledger.since("", more.cursor)
    assert (nothing.cursor, len(nothing.votes.question), nothing.deleted) == (more.cursor, 0, [])


def test_the_version_changes_with_the_database(ledger: Ledger, place: Place):
    before = ledger.version()
    with closing(open_ledger(place.address, place.folder)) as other:
        say(other, "one", "ann", "a")
    assert ledger.version() != before


def test_an_event_of_a_source_counts_once_for_each_person(ledger: Ledger):
    for user in ("ann", "ann", "bob"):
        say(ledger, "one", user, "a", kind=LIKED, source="shop", event="1")
    assert votes(ledger) == [("one", "a", 40, 40)]
    ledger.retract("", ledger.question("one"), [ledger.document("a")], ledger.person("ann"))
    say(ledger, "one", "ann", "a", kind=LIKED, source="shop", event="1")  # it is sent again, late
    assert votes(ledger) == [("one", "a", 20, 20)]
    say(ledger, "one", "ann", "a", kind=LIKED, source="help desk", event="1")
    assert votes(ledger) == [("one", "a", 40, 40)]


def test_the_last_word_of_a_person_counts(ledger: Ledger):
    say(ledger, "one", "ann", "a", kind=(SKIPPED, 3, 0))
    assert votes(ledger) == [("one", "a", 3, 0)]
    say(ledger, "one", "ann", "a", kind=("disliked", 20, 0))
    say(ledger, "one", "ann", "a")
    say(ledger, "one", "ann", "a", kind=(SKIPPED, 3, 0))
    assert votes(ledger) == [("one", "a", 10, 10)]


def test_votes_are_taken_back(ledger: Ledger):
    say(ledger, "one", "ann", "a", "b")
    say(ledger, "one", "bob", "a")
    one, documents = ledger.question("ONE"), [ledger.document("a"), ledger.document("c")]
    assert ledger.retract("", one, documents, ledger.person("ann")) == 1
    assert ledger.retract("", one, documents, ledger.person("ann")) == 0
    assert ledger.retract("", one, documents, None) == 0
    assert votes(ledger) == [("one", "a", 10, 10), ("one", "b", 10, 10)]
    for number in (-5, -9):
        ledger.append("", Entry("one", number, [Said("a", *LIKED)]))
    assert ledger.retract("", one, documents, None) == 1
    assert {row[4] for row in everything(ledger)["vote"] if row[6] == "undo"} == {ledger.person("ann"), -9}


def test_vectors_come_back_in_unit_length(ledger: Ledger):
    vectors = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    for number, vector in enumerate(vectors):
        say(ledger, f"question {number}", "ann", "a", vector=vector.tobytes(), encoder="mini")
    say(ledger, "without", "ann", "a")
    changes = ledger.since("", Cursor())
    assert [each.encoder for each in changes.questions] == ["mini"] * 3 + [""]
    found = Snapshot.of(changes).vectors
    assert found is not None
    np.testing.assert_allclose(found.rows, unit_vectors(np.array([*vectors, np.zeros(5)])))


def test_people_have_a_hash_that_only_this_ledger_knows(ledger: Ledger, tmp_path: Path):
    with closing(open_ledger(tmp_path / "another.db")) as other:
        assert ledger.person("ann") != other.person("ann")
        assert ledger.question("one") != other.question("one")
    assert ledger.person("ann") == ledger.person("ann") >= 0


@pytest.mark.parametrize("name", ["nul", "caf\u00e9", "\U0001f600", "%s ? $1 {0}", "' OR 1=1; --", "x" * 5000])
def test_any_text_is_stored(ledger: Ledger, name: str):
    say(ledger, name, name, name, tenant=name)
    assert votes(ledger, name) == [(name, name, 10, 10)]


def test_many_at_once_are_written_together_and_none_is_lost(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    batches, store, go = list[int](), ledger._group._store, threading.Event()

    def slow(batch: Any) -> None:
        go.wait()
        batches.append(len(batch))
        store(batch)

    monkeypatch.setattr(ledger._group, "_store", slow)
    with ThreadPoolExecutor(17) as pool:
        waiting = [pool.submit(say, ledger, f"question {number % 7}", number, "a") for number in range(17)]
        while len(ledger._group._waiting) < 16:
            threading.Event().wait(0.001)
        go.set()
        for each in waiting:
            each.result()
    assert batches == [1, 16]
    assert sum(amount for _, _, amount, _ in votes(ledger)) == 170


def test_a_batch_that_fails_is_not_stored_and_all_of_it_are_told(ledger: Ledger, monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as patched:
        patched.setattr(ledger, "_commit", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            say(ledger, "one", "ann", "a")
    assert everything(ledger)["vote"] == []
    say(ledger, "one", "ann", "a")
    assert votes(ledger) == [("one", "a", 10, 10)]


# --- tenants ----------------------------------------------------------------------------------------------------------


def test_nothing_crosses_between_tenants(place: Place):
    names = ("", "acme", "acme2", "ac", "acme%", "acm_", "ACME")
    memories = {name: Memory(place.address, tenant=name, folder=place.folder) for name in names}
    for name, memory in memories.items():
        for user in range(3):
            memory.learn("reset my password", ["a", "b", f"only {name}"], [f"only {name}"], user=user)
    for name, memory in memories.items():
        assert [hit.id for hit in memory.recall("reset the password", 99)] == [f"only {name}"]
    assert memories["acme"].forget(user=1) == 3
    assert memories["acme2"].unlearn("reset my password", ["only acme2"], user=2) == 1
    assert memories["acme"].forget(before=1e11) == 6
    assert [len(memory) for memory in memories.values()] == [1, 0, 1, 1, 1, 1, 1]
    left = memories["ACME"].recall("reset the password", vector=None)
    assert [hit.id for hit in left] == ["only ACME"]
    for memory in memories.values():
        memory.close()


# --- forgetting -------------------------------------------------------------------------------------------------------


def taught(ledger: Ledger) -> None:
    for number in range(6):
        say(
            ledger,
            f"question {number}",
            f"user {number % 3}",
            "a",
            f"b{number}",
            kin=[(ledger.question("question 0"), 0.5)],
        )
    ledger.add_list("", List("list", "question 0", ledger.person("user 1"), "[]"))


@pytest.mark.parametrize("batch", [1, 3, 1000])
@pytest.mark.parametrize(
    ("what", "n"), [("person", 4), ("document", 6), ("question", 2), ("day", 12), ("person and document", 2)]
)
def test_what_is_forgotten_is_in_no_table(
    ledger: Ledger, place: Place, what: str, n: int, batch: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(base, "_BATCH", batch)
    taught(ledger)
    followed = Snapshot.of(ledger.since("", Cursor()))
    person, document, question = ledger.person("user 1"), ledger.document("a"), ledger.question("question 1")
    selection = {
        "person": Selection(person=person),
        "document": Selection(document=document),
        "question": Selection(question=question),
        "day": Selection(day=10**6),
        "person and document": Selection(person=person, document=document),
    }[what]
    kept = [row for row in told(followed) if not gone(row, what)]
    assert ledger.forget("", selection) == n
    assert ledger.forget("", selection) == 0
    assert votes(ledger) == kept
    followed.apply(ledger.since("", followed.cursor))
    assert told(followed) == kept
    tables = everything(ledger)
    if selection.person is None:
        tables.pop("commit")  # readers who follow are told which questions to look at again
    values = [value for rows in tables.values() for row in rows for value in row]
    written = json.dumps([str(value) for value in values]) + "".join(
        file.read_text() for file in place.folder.rglob("*") if file.is_file()
    )
    if "and" not in what and what != "day":
        assert str({"person": person, "document": document, "question": question}[what]) not in written
    assert "user 1" not in written
    assert ("question 1" in written) == (what not in ("person", "question", "day"))


def gone(row: tuple[str, str, float, float], what: str) -> bool:
    of_person, of_document = row[0] in ("question 1", "question 4"), row[1] == "a"
    return {
        "person": of_person,
        "document": of_document,
        "question": row[0] == "question 1",
        "day": True,
        "person and document": of_person and of_document,
    }[what]


def test_forgetting_goes_on_after_it_was_killed(ledger: Ledger, place: Place, monkeypatch: pytest.MonkeyPatch):
    taught(ledger)
    calls, delete_rows = [], Ledger._delete_rows

    def killed(*given: Any) -> None:
        calls.append(given)
        if len(calls) == 3:
            raise KeyboardInterrupt
        delete_rows(*given)

    with monkeypatch.context() as patched:
        patched.setattr(base, "_BATCH", 1)
        patched.setattr(Ledger, "_delete_rows", killed)
        with pytest.raises(KeyboardInterrupt):
            ledger.forget("", Selection(person=ledger.person("user 1")))
    assert len(votes(ledger)) == 10
    say(ledger, "question 1", "user 1", "later")
    open_ledger(place.address, place.folder / "elsewhere").close()  # which does not know
    assert len(votes(ledger)) == 11
    ledger.recover()
    assert [row[1] for row in votes(ledger) if gone(row, "person")] == ["later"]
    assert len(votes(ledger)) == 9


def test_a_restored_dump_brings_nobody_back_and_is_counted(place: Place):
    with closing(Memory(place.address, folder=place.folder)) as memory:
        for user in ("ann", "bob", "eve"):
            memory.learn("reset my password", ["a", "b"], ["b"], user=user)
        memory.learn("opening hours", ["a"], ["a"], user="eve")
    place.dump()
    memory = Memory(place.address, folder=place.folder)
    assert memory.forget(user="eve") == 3
    for number in range(5):
        memory.learn(f"later {number}", ["c"], ["c"], user="ann")
    assert (len(memory), memory.health.restored, memory.health.lost) == (6, 0, 0)
    place.restore()
    memory._follow(wait=True)
    assert (len(memory), memory.health.restored) == (1, 1)
    assert memory.health.lost == 6  # five votes, and one change that forgot
    assert memory.forget(user="eve") == 0
    assert memory.forget(user="ann") == 2
    memory.close()
    place.restore()
    with closing(Memory(place.address, folder=place.folder)) as again:
        assert again.forget(document="b") == 1  # that of bob


def test_a_reader_that_is_far_behind_reads_everything_again(place: Place):
    with closing(Memory(place.address, folder=place.folder)) as memory:
        memory.learn("reset my password", ["a", "b"], ["b"], user="ann")
        with closing(open_ledger(place.address, place.folder)) as ledger, memory._following:
            for number in range(3):
                say(ledger, f"question {number}", "ann", "c")
            with ledger.writing() as execute:
                execute("DELETE FROM memory_commit WHERE seq < 5")
        memory._follow(wait=True)
        assert (len(memory), memory.health.restored) == (4, 0)


def test_another_history_of_the_same_length_is_noticed(ledger: Ledger, place: Place):
    say(ledger, "one", "ann", "a")
    ledger.since("", Cursor())
    place.dump()
    say(ledger, "two", "ann", "a")
    before = ledger.since("", Cursor()).cursor
    place.restore()
    say(ledger, "three", "ann", "a")
    changes = ledger.since("", before)
    assert (changes.again, changes.cursor.seq) == (True, before.seq)
    assert [each.text for each in changes.questions] == ["one", "three"]


# --- readers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_who_follows_knows_what_who_reads_everything_knows(
    ledger: Ledger, seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("kinrank.memory.snapshot._MERGED", 20)
    rng = np.random.default_rng(seed)
    followed = Snapshot()
    kinds = [CHOSEN, LIKED, ("disliked", 20, 0), (SKIPPED, 3, 0)]
    for step in range(80):
        question, user, document = f"q{rng.integers(12)}", f"u{rng.integers(6)}", f"d{rng.integers(5)}"
        act = rng.random()
        if act < 0.75:
            kin = [(ledger.question(f"q{other}"), float(rng.random())) for other in rng.choice(12, 3, replace=False)]
            say(ledger, question, user, document, kind=kinds[rng.integers(4)], kin=kin)
        elif act < 0.85:
            ledger.retract("", ledger.question(question), [ledger.document(document)], ledger.person(user))
        elif act < 0.9:
            ledger.forget("", Selection(person=ledger.person(user)))
        else:
            ledger.forget("", Selection(question=ledger.question(question)))
        if step % 3 == 0:
            changes = ledger.since("", followed.cursor)
            followed.apply(changes)
        if step == 50:
            followed.write(tmp_path / "snapshot", {})
            followed, _ = Snapshot.read(tmp_path / "snapshot")
    followed.apply(ledger.since("", followed.cursor))
    fresh = Snapshot.of(ledger.since("", Cursor()))
    assert told(followed) == told(fresh)
    assert len(followed) == len(fresh)
    documents = [ledger.document(f"d{number}") for number in range(5)]
    for one, other in zip(followed.everyone(documents), fresh.everyone(documents), strict=True):
        assert one.tolist() == other.tolist()
    assert compared(followed) == compared(fresh)
    for kin in rng.permutation(12), rng.permutation(12):
        seen = [kin_cells(each, ledger, kin) for each in (followed, fresh)]
        assert seen[0] == seen[1]


def compared(snapshot: Snapshot) -> list[tuple[float, ...]]:
    return sorted(row for row in zip(*(values.tolist() for values in snapshot.pairs), strict=True) if row[3] >= 0)


def kin_cells(snapshot: Snapshot, ledger: Ledger, kin: Any) -> list[Any]:
    found = [snapshot.place(ledger.question(f"q{number}")) for number in kin]
    cells = snapshot.kin_cells([place for place in found if place is not None])
    return [(int(kin), *row) for kin, *row in zip(*(np.round(values, 9).tolist() for values in cells), strict=True)]


@contextmanager
def held(place: Place) -> Iterator[None]:
    """Hold the lock of all who write, as another process that is stopped does."""
    if place.name.startswith("sqlite"):
        with closing(sqlite3.connect(place.address, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")
    else:
        import psycopg

        with psycopg.connect(place.address) as other:
            other.execute("SELECT * FROM memory_history FOR UPDATE")
            yield
            other.rollback()


def test_asking_and_opening_do_not_wait_for_who_writes(place: Place):
    with closing(Memory(place.address, folder=place.folder)) as memory:
        for user in range(3):
            memory.learn("reset my password", ["a", "b"], ["b"], user=user)
        with ThreadPoolExecutor(1) as pool:
            with held(place):
                learning = pool.submit(memory.learn, "opening hours", ["c"], ["c"], user="ann")
                assert memory.rerank("reset the password", ["a", "b"])[0].id == "b"
                with closing(Memory(place.address, folder=place.folder)) as other:
                    assert other.rerank("reset the password", ["a", "b"])[0].id == "b"
                assert not learning.done()
            learning.result()
        assert memory.recall("opening hours")[0].id == "c"


def test_without_the_database_it_answers_from_what_it_knew(place: Place, monkeypatch: pytest.MonkeyPatch):
    with closing(Memory(place.address, folder=place.folder)) as memory:
        for user in range(3):
            memory.learn("reset my password", ["a", "b"], ["b"], user=user)
        before = memory.rerank("reset the password", ["a", "b"])
        with monkeypatch.context() as patched:

            def fails(*_: object) -> Any:
                raise StoreError("the disk is on fire")

            patched.setattr(memory._ledger, "since", fails)
            patched.setattr(memory._ledger, "version", lambda: object())
            memory._follow(wait=True)
            assert memory.rerank("reset the password", ["a", "b"]) == before
            assert memory.health.failures > 0
        memory.learn("opening hours", ["c"], ["c"], user="ann")
        assert memory.recall("opening hours")[0].id == "c"


KILLED = """
import sys
from kinrank import Memory
memory = Memory(sys.argv[1], folder=sys.argv[2])
number = 0
while True:
    memory.learn(f"question {number % 9}", ["d"], ["d"], user=number)
    print(number, flush=True)
    number += 1
"""


def test_what_was_acknowledged_survives_kill(place: Place):
    command = [sys.executable, "-c", KILLED, place.address, os.fspath(place.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(30)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout if line.endswith("\n")]
    with closing(Memory(place.address, folder=place.folder)) as memory:
        assert memory.forget(document="d") in (len(acknowledged), len(acknowledged) + 1)


def test_lists_are_kept_for_all_processes(ledger: Ledger, place: Place):
    handed_out = List("list-1", "one", ledger.person("ann"), '["a"]')
    ledger.add_list("acme", handed_out)
    with closing(open_ledger(place.address, place.folder)) as other:
        assert other.find_list("acme", "list-1") == handed_out
        assert other.find_list("acme2", "list-1") is None
        other.forget("acme", Selection(person=ledger.person("ann")))
    assert ledger.find_list("acme", "list-1") is None


# --- what is refused --------------------------------------------------------------------------------------------------


def test_tables_of_a_newer_version_are_refused(place: Place):
    ledger = open_ledger(place.address, place.folder)
    with ledger.writing() as execute:
        execute("UPDATE memory_setting SET value = '99' WHERE name = 'format'")
    ledger.close()
    with pytest.raises(NewerFormatError, match=r"written by a newer kinrank \(format 99\)"):
        open_ledger(place.address, place.folder)


def test_a_closed_ledger_says_so(place: Place):
    ledger = open_ledger(place.address, place.folder)
    ledger.close()
    with pytest.raises(StoreError, match="closed"):
        say(ledger, "one", "ann", "a")
    with pytest.raises(StoreError, match="closed"):
        ledger.since("", Cursor())


def test_what_is_no_address_is_refused():
    with pytest.raises(ParameterError, match=r"got 'mysql://...@db': pass one of these"):
        open_ledger("mysql://me:secret@db")


@pytest.mark.engine
def test_a_process_has_two_connections_at_most(tmp_path: Path):
    import psycopg

    from tests.serve import databases

    with databases.DATABASES["postgresql"].empty(tmp_path) as address:
        memories = [Memory(address, tenant=name) for name in ("a", "b", "c")]
        with ThreadPoolExecutor(6) as pool:
            for number in range(30):
                pool.submit(memories[number % 3].learn, f"question {number}", ["d"], ["d"], user=number)
        with psycopg.connect(address) as connection:
            count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'kinrank'"
            assert connection.execute(count).fetchone() == (2,)
            for memory in memories:
                memory.close()
            while connection.execute(count).fetchone() != (0,):
                connection.rollback()
