"""What every store of judgments must do; see `kinrank.serve._judgments.JudgmentStore`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kinrank.checks import require
from kinrank.errors import DataError
from kinrank.serve._judgments import MOST_DOCUMENTS, Entry, JudgmentRow, JudgmentStore, merge_records
from kinrank.serve.messages import CandidateSet, JudgedQuery

Open = Callable[[], JudgmentStore]
"""Opens the same store, empty at first, with a new connection."""

MODEL = "movies"


def judgment_store_checks() -> list[Callable[[Open], None]]:
    """Return the checks; each takes a function that opens a store of its own, empty at first."""
    return [
        check_changes_are_read_since_a_revision,
        check_same_rows_again_change_nothing,
        check_rows_of_one_query_and_source_are_merged,
        check_latest_documents_are_kept_at_the_limit,
        check_failed_append_keeps_nothing,
        check_judgments_are_withdrawn_by_query_and_source,
        check_long_history_is_read_in_pages,
        check_no_change_is_missed_among_slow_writers,
    ]


def check_changes_are_read_since_a_revision(open_store: Open) -> None:
    """Another connection reads a change as soon as it is stored; models do not mix."""
    writer, reader = open_store(), open_store()
    require(reader.read(MODEL).revision == 0, "an empty store must be at revision 0")
    first = writer.append(MODEL, [JudgmentRow("q1", "", "a"), JudgmentRow("q2", "", "b")])
    second = writer.append(MODEL, [JudgmentRow("q2", "clicks", "c")])
    writer.append("books", [JudgmentRow("q9", "", "z")])
    require((first, second) == (1, 2), "a change must get the next revision of its model")
    everything = reader.read(MODEL)
    require(list(everything.queries) == ["q1", "q2"], "read must return the queries of one model, oldest first")
    require(
        reader.read(MODEL, first).queries == {"q2": [JudgmentRow("q2", "", "b"), JudgmentRow("q2", "clicks", "c")]},
        "a changed query must come with the rows of all sources, the latest last",
    )
    require(reader.read(MODEL, second).queries == {}, "nothing must be read twice")
    try:
        reader.read(MODEL, second + 1)
    except DataError:
        return
    raise AssertionError("a revision that the store has not reached must raise DataError")


def check_same_rows_again_change_nothing(open_store: Open) -> None:
    """Storing the same rows again neither changes them nor counts up the revision."""
    store = open_store()
    rows = [JudgmentRow("q1", "", "a"), JudgmentRow("q1", "clicks", "b")]
    once, twice = store.append(MODEL, rows), store.append(MODEL, rows)
    require(once == twice == store.position(MODEL)[0], "the same rows again must not make a new revision")


def check_rows_of_one_query_and_source_are_merged(open_store: Open) -> None:
    """`merge` decides what is kept of the stored and the new record."""
    store = open_store()
    store.append(MODEL, [JudgmentRow("q1", "", "a")], lambda old, new: old + new)
    store.append(MODEL, [JudgmentRow("q1", "", "b"), JudgmentRow("q1", "", "c")], lambda old, new: old + new)
    require(store.read(MODEL).queries == {"q1": [JudgmentRow("q1", "", "abc")]}, "records must be merged")


def check_latest_documents_are_kept_at_the_limit(open_store: Open) -> None:
    """A document that is judged again counts as new when the oldest documents of a query are dropped."""
    store = open_store()

    def judge(first: int, last: int, grade: float) -> int:
        ids = [f"d{number}" for number in range(first, last)]
        judged = JudgedQuery("q1", CandidateSet(ids, np.zeros((len(ids), 1), np.float32), ("f",)), [grade] * len(ids))
        return store.append(MODEL, [JudgmentRow("q1", "", Entry("model", judged).dump())], merge_records)

    judge(0, MOST_DOCUMENTS, 0.0)
    judge(0, 10, 1.0)
    last = judge(MOST_DOCUMENTS, MOST_DOCUMENTS + 5, 2.0)
    require(judge(MOST_DOCUMENTS, MOST_DOCUMENTS + 5, 2.0) == last, "the same judgments again must change nothing")
    [row] = store.read(MODEL).queries["q1"]
    judged = Entry.parse(row.record or "").judged
    kept = dict(zip(judged.candidates.ids, judged.grades, strict=True))
    require(len(kept) == MOST_DOCUMENTS, "a query must keep as many documents as allowed")
    require([kept.get(f"d{number}") for number in range(15)] == [1.0] * 10 + [None] * 5, "the oldest must be dropped")


def check_failed_append_keeps_nothing(open_store: Open) -> None:
    """If one row of an append fails, none is kept and the revision stays."""
    store = open_store()
    store.append(MODEL, [JudgmentRow("q1", "", "a")])

    def refuse(old: str, new: str) -> str:
        raise DataError(f"{old} does not go with {new}")

    try:
        store.append(MODEL, [JudgmentRow("q0", "", "x"), JudgmentRow("q1", "", "y")], refuse)
    except DataError:
        changes = store.read(MODEL)
        require(changes.queries == {"q1": [JudgmentRow("q1", "", "a")]}, "a failed append must keep nothing")
        require(changes.revision == 1, "a failed append must not count up the revision")
        return
    raise AssertionError("the exception must reach the caller")


def check_judgments_are_withdrawn_by_query_and_source(open_store: Open) -> None:
    """Withdrawn judgments are read as changes without a record, and can be stored again."""
    store = open_store()
    sources = ("", "clicks")
    before = store.append(MODEL, [JudgmentRow(query, source, "a") for query in ("q1", "q2") for source in sources])
    require(store.delete(MODEL, source="clicks") == (2, before + 1), "both rows of the source must be withdrawn")
    require(store.delete(MODEL, query="q1") == (1, before + 2), "the other row of the query must be withdrawn")
    require(store.delete(MODEL, query="q1") == (0, before + 2), "nothing is left to withdraw")
    gone, left = JudgmentRow("q1", "", None), JudgmentRow("q2", "", "a")
    found = store.read(MODEL, before).queries
    require(gone in found["q1"] and not any(row.record for row in found["q1"]), "q1 must be withdrawn entirely")
    require(left in found["q2"], "a row of another source must stay")
    after = store.append(MODEL, [JudgmentRow("q1", "", "b")])
    require(JudgmentRow("q1", "", "b") in store.read(MODEL, after - 1).queries["q1"], "it must be storable again")


def check_long_history_is_read_in_pages(open_store: Open) -> None:
    """Pages together contain every change, and the last one reaches the revision."""
    store = open_store()
    for number in range(7):
        store.append(MODEL, [JudgmentRow(f"q{number}", "", "a"), JudgmentRow(f"r{number}", "", "a")])
    seen: list[str] = []
    position, revision = 0, 7
    while position < revision:
        page = store.read(MODEL, position, limit=3)
        require(page.through > position, "every page must go on")
        seen += page.queries
        position, revision = page.through, page.revision
    require(sorted(seen) == sorted(f"{kind}{n}" for kind in "qr" for n in range(7)), "pages must be complete")


def check_no_change_is_missed_among_slow_writers(open_store: Open) -> None:
    """A reader that follows the revision sees every change of concurrent transactions that commit late."""
    n_writers, n_turns = 4, 5
    open_store().append(MODEL, [JudgmentRow(f"writer {n}", "", "start") for n in range(n_writers)])
    done = threading.Event()

    def write(writer: int) -> int:
        store = open_store()

        def slowly(_: str, new: str) -> str:
            time.sleep(0.003 * ((writer * 7) % 5))
            return new

        last = 0
        for turn in range(n_turns):
            # The second row calls `slowly`, while the transaction has its revision and is not committed.
            rows = [JudgmentRow(f"{writer} {turn}", "", "a"), JudgmentRow(f"writer {writer}", "", f"{turn}")]
            last = store.append(MODEL, rows, slowly)
        return last

    def follow() -> dict[str, int]:
        store, position = open_store(), 1
        seen: dict[str, int] = {}
        while True:
            finished = done.is_set()
            changes = store.read(MODEL, position)
            for query in changes.queries:
                seen[query] = seen.get(query, 0) + 1
            position = changes.through
            if finished and position == changes.revision:
                return seen

    with ThreadPoolExecutor(n_writers + 1) as pool:
        reader = pool.submit(follow)
        last = list(pool.map(write, range(n_writers)))
        done.set()
        seen = reader.result()
    require(max(last) == 1 + n_writers * n_turns, "every append must have its own revision, without gaps")
    expected = {f"{writer} {turn}": 1 for writer in range(n_writers) for turn in range(n_turns)}
    found = {query: times for query, times in seen.items() if not query.startswith("writer")}
    require(found == expected, "the reader must see every change once")
