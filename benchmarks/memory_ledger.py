"""What the ledger of `Memory` costs: asking, voting, forgetting and a fleet, on SQLite and PostgreSQL.

``--part asking``: `Memory` with ``--known`` questions (two of GOV.UK joined) of three votes each; with ``--encoder
minilm`` they have vectors, which are given. Opening from the ledger and from the file that `close` writes; learn and
rerank; `unlearn`, and then `rerank` in another process that must know; `rerank` while another process holds the lock of
all who write. Milliseconds are medians, and in brackets the 99th of 100.

``--part votes``: votes a second that are durable, one after the other and by 32 threads, whose votes are written in
groups.

``--part forget``: seconds to forget a person (20 votes), a document, a question, and the oldest tenth of the days,
among ``--votes`` votes.

``--part fleet``: three processes on one PostgreSQL. Until when a vote is known to all; whether all acknowledged votes
are there after kill -9 of each; and what is lost, and what `Memory.health` says, after a dump was restored.

PostgreSQL is that of `scripts/engine`, which does not wait for its disk (fsync=off).
"""

from __future__ import annotations

import multiprocessing
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import log_progress
from benchmarks.memory_stream import stream
from kinrank import Memory
from kinrank.memory.ledger import Cursor, Entry, Ledger, Said, Selection, open_ledger
from kinrank.memory.ledger._base import DAY
from kinrank.memory.memory import VOTES
from kinrank.memory.snapshot import Snapshot

OPTIONS = {
    "part": ("asking", "votes", "forget", "fleet"),
    "store": ("sqlite", "postgresql"),
    "known": "100000",
    "votes": "1000000",
    "encoder": ("ngrams", "minilm"),
}
PORT = 15843
REPEATS = 100


def run(part: str, store: str, known: str, votes: str, encoder: str) -> dict[str, Any]:
    """Measure one part."""
    with tempfile.TemporaryDirectory() as folder, place(store if part != "fleet" else "postgresql", folder) as address:
        kept = Path(folder) / "kept"
        measure: dict[str, Callable[[], dict[str, Any]]] = {
            "asking": lambda: asking(address, kept, int(known), encoder),
            "votes": lambda: rates(address, kept),
            "forget": lambda: forgetting(address, kept, int(votes)),
            "fleet": lambda: fleet(address, kept),
        }
        return {"part": part, "store": "postgresql" if part == "fleet" else store, **measure[part]()}


@contextmanager
def place(store: str, folder: str) -> Iterator[str]:
    """Yield the address of an empty database."""
    if store == "sqlite":
        yield f"{folder}/memory.db"
        return
    import psycopg

    from benchmarks.fleet import engine

    server = engine("start", PORT)
    try:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS memory WITH (FORCE)")
            connection.execute("CREATE DATABASE memory")
        yield server.rpartition("/")[0] + "/memory"
    finally:
        engine("stop", PORT)


# --- asking -----------------------------------------------------------------------------------------------------------


def asking(address: str, kept: Path, known: int, encoder: str) -> dict[str, Any]:
    """Time opening, learning, asking and what others must know."""
    each = stream("govuk", 4000, encoder=encoder)
    rng = np.random.default_rng(0)
    pairs = rng.integers(0, len(each.questions), (known + 2 * REPEATS, 2)).tolist()
    texts = [f"{each.questions[one]} {each.questions[other]} {n}" for n, (one, other) in enumerate(pairs)]
    hits = [each.hits[one] or [("none", 0.0)] for one, _ in pairs]

    width = len(next(iter(each.vectors.values()), ()))

    def vector(number: int) -> Any:
        """Return the sum of the vectors of both questions and noise; None without an encoder."""
        if not width:
            return None
        noise = np.random.default_rng(number).normal(0.0, 0.02, width)
        return sum((each.vectors[each.questions[place]] for place in pairs[number]), noise).astype(np.float32)

    def entry(ledger: Ledger, number: int) -> Entry:
        shown = [document for document, _ in hits[number][:3]]
        said = [Said(name, "chosen", *VOTES["chosen"]) for name in shown[:1]]
        said += [Said(name, "skipped", 3, 0) for name in shown[1:]]
        own = vector(number)
        return Entry(texts[number], ledger.person(number % 5000), said, vector=None if own is None else own.tobytes())

    figures: dict[str, Any] = {"known": known}
    with closing(open_ledger(address, kept)) as ledger:
        start = time.perf_counter()
        ledger.append_all("", (entry(ledger, number) for number in range(known)))
        figures["filled s"] = round(time.perf_counter() - start, 1)
        log_progress(f"{figures}")
        start = time.perf_counter()
        snapshot = Snapshot.of(ledger.since("", Cursor()))
        figures["read from the ledger s"] = round(time.perf_counter() - start, 2)
        snapshot.write(kept / "timed", {})
        start = time.perf_counter()
        Snapshot.read(kept / "timed")
        figures["read from the file s"] = round(time.perf_counter() - start, 2)
        del snapshot
    log_progress(f"{figures}")
    start = time.perf_counter()
    memory = Memory(address, folder=kept)
    figures["opened with its index s"] = round(time.perf_counter() - start, 2)
    there, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=answer, args=(address, str(kept), theirs), daemon=True)
    other.start()
    there.recv()
    log_progress(f"{figures}")
    times: dict[str, list[float]] = {"learn": [], "rerank": [], "unlearn, rerank elsewhere": [], "rerank, locked": []}
    vectors = [vector(number) for number in range(known, known + REPEATS)]
    for number in range(known, known + REPEATS):
        documents = [document for document, _ in hits[number]]
        with timed(times["rerank"]):
            memory.rerank(texts[number], documents, vector=vectors[number - known])
        with timed(times["learn"]):
            memory.learn(texts[number], documents[:10], documents[:1], user="ann", vector=vectors[number - known])
    for number in range(known, known + REPEATS):
        documents = [document for document, _ in hits[number]]
        there.send(("until unknown", texts[number], documents[0]))
        assert there.recv() == "known"
        with timed(times["unlearn, rerank elsewhere"]):
            memory.unlearn(texts[number], documents[:1], user="ann")
            assert there.recv() == "unknown"
    with locked(address):
        for number in range(known + REPEATS, known + 2 * REPEATS):
            documents = [document for document, _ in hits[number]]
            with timed(times["rerank, locked"]):
                memory.rerank(texts[number], documents)
    start = time.perf_counter()
    memory.close()
    figures["closed s"] = round(time.perf_counter() - start, 2)
    start = time.perf_counter()
    with closing(Memory(address, folder=kept)) as memory:
        memory.rerank(texts[0], ["a"], vector=vectors[0])
        figures["opened from the file, first rerank s"] = round(time.perf_counter() - start, 2)
    there.send(None)
    other.join()
    return figures | {f"{name} ms": shown(values) for name, values in times.items()}


def answer(address: str, kept: str, pipe: Any) -> None:
    """Answer in another process, until a document is no longer chosen for a question."""
    with closing(Memory(address, folder=kept)) as memory:
        pipe.send("ready")
        while (asked := pipe.recv()) is not None:
            _, question, document = asked
            for state in (True, False):
                while (f"*{question}*" in reason(memory, question, document)) != state:
                    pass
                pipe.send("known" if state else "unknown")


def reason(memory: Memory, question: str, document: str) -> str:
    """Return what memory says of a document."""
    return next(hit.reason for hit in memory.rerank(question, [document, "another"]) if hit.id == document)


@contextmanager
def timed(seconds: list[float]) -> Iterator[None]:
    """Add how long a block took."""
    start = time.perf_counter()
    yield
    seconds.append(time.perf_counter() - start)


def shown(seconds: list[float]) -> str:
    """Return the median and the 99th of 100 in milliseconds."""
    return f"{1000 * statistics.median(seconds):.2f} ({1000 * sorted(seconds)[-2]:.1f})"


@contextmanager
def locked(address: str) -> Iterator[None]:
    """Hold the lock of all who write, as another process does that was stopped."""
    if address.startswith("postgresql:"):
        import psycopg

        with psycopg.connect(address) as other:
            other.execute("SELECT * FROM memory_history FOR UPDATE")
            yield
    else:
        with closing(sqlite3.connect(address, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            yield
            other.execute("ROLLBACK")


# --- votes a second ---------------------------------------------------------------------------------------------------


def rates(address: str, kept: Path, n: int = 3000) -> dict[str, Any]:
    """Return how many votes a second are durable."""
    figures: dict[str, Any] = {}
    with closing(open_ledger(address, kept)) as ledger:

        def vote(number: int) -> None:
            said = [Said(f"document {number % 50}", "liked", *VOTES["liked"])]
            ledger.append("", Entry(f"question {number % 500}", ledger.person(number), said))

        vote(0)
        start = time.perf_counter()
        for number in range(n):
            vote(number)
        figures["one by one"] = round(n / (time.perf_counter() - start))
        start = time.perf_counter()
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(vote, range(n, 4 * n)))
        figures["by 32 threads"] = round(3 * n / (time.perf_counter() - start))
    return figures


# --- forgetting -------------------------------------------------------------------------------------------------------


def forgetting(address: str, kept: Path, n: int) -> dict[str, Any]:
    """Time what can be forgotten among many votes: of 20 votes a person, and five a question."""
    rng = np.random.default_rng(0)
    days = 100
    now = time.time
    with closing(open_ledger(address, kept)) as ledger:
        start = time.perf_counter()

        def entries() -> Iterator[Entry]:
            some = rng.integers(0, (n // 5, 1000, n // 20), (n // days, 3)).tolist()
            for question, document, person in some:
                said = [Said(f"document {document}", "chosen", *VOTES["chosen"])]
                yield Entry(f"how do I do thing {question}", ledger.person(person), said)

        for day in range(days):
            time.time = lambda day=day: now() - (days - day) * DAY  # type: ignore[assignment,misc]
            ledger.append_all("", entries())
            if day % 10 == 0:
                log_progress(f"day {day}, {time.perf_counter() - start:.0f} s")
        time.time = now
        figures: dict[str, Any] = {"votes": n, "filled s": round(time.perf_counter() - start)}
        selections = {
            "person": Selection(person=ledger.person(7)),
            "question": Selection(question=ledger.question("how do I do thing 7")),
            "document": Selection(document=ledger.document("document 7")),
            "oldest tenth of days": Selection(day=int((now() - 0.9 * days * DAY) // DAY)),
        }
        for what, selection in selections.items():
            start = time.perf_counter()
            gone = ledger.forget("", selection)
            figures[f"{what}: s"] = round(time.perf_counter() - start, 2)
            figures[f"{what}: votes"] = gone
            log_progress(f"{figures}")
    return figures


# --- a fleet ----------------------------------------------------------------------------------------------------------


def fleet(address: str, kept: Path, rounds: int = 20) -> dict[str, Any]:
    """Let three processes learn, kill each, and restore a dump."""
    from benchmarks.fleet import copy_database

    context = multiprocessing.get_context("spawn")
    server = address.rpartition("/")[0] + "/postgres"

    def started() -> tuple[Any, Any]:
        here, theirs = multiprocessing.Pipe()
        process = context.Process(target=replica, args=(address, str(kept), theirs), daemon=True)
        process.start()
        assert here.recv() == "ready"
        return process, here

    replicas = [started() for _ in range(3)]
    seen, acknowledged, killed = list[float](), set[str](), 0
    for number in range(rounds):
        question = f"what is number {number} {'abcdefgh'[number % 8] * 3}"
        _, voter = replicas[number % 3]
        voter.send(("learn", question))
        assert voter.recv() == question
        start = time.perf_counter()
        acknowledged.add(question)
        for _, pipe in replicas:
            pipe.send(("wait", question))
        for _, pipe in replicas:
            assert pipe.recv() == question
        seen.append(time.perf_counter() - start)
    for place_ in range(3):
        process, pipe = replicas[place_]
        pipe.send(("stream", f"replica {place_}"))
        time.sleep(1.0)
        process.kill()
        process.join()
        killed += 1
        with suppress(EOFError, OSError):
            while pipe.poll(0):
                acknowledged.add(pipe.recv())
        replicas[place_] = started()
    known = questions(replicas[0][1])
    figures = {
        "seen by all after s, worst": round(max(seen), 3),
        "killed": killed,
        "acknowledged": len(acknowledged),
        "of them lost": len(acknowledged - known),
    }
    copy_database(server, "memory", "dump")
    after = [f"after the dump {number}" for number in range(25)]
    for question in after:
        replicas[1][1].send(("learn", question))
        assert replicas[1][1].recv() == question
    for _, pipe in replicas:
        pipe.send(("wait", after[-1]))
        assert pipe.recv() == after[-1]
    copy_database(server, "dump", "memory")
    health = []
    for _, pipe in replicas:
        pipe.send(("restored", None))
        health.append(pipe.recv())
    left = questions(replicas[2][1])
    for process, pipe in replicas:
        pipe.send(("end", None))
        process.join()
    return figures | {
        "votes after the dump": len(after),
        "of them left": len(set(after) & left),
        "of the others lost": len(known - left),
        "lost, as each replica says": [each.lost for each in health],
    }


def questions(pipe: Any) -> set[str]:
    """Return the questions that a replica knows."""
    pipe.send(("questions", None))
    return set(pipe.recv())


def replica(address: str, kept: str, pipe: Any) -> None:
    """Do as one is told."""
    with closing(Memory(address, folder=kept)) as memory:
        pipe.send("ready")
        while True:
            what, question = pipe.recv()
            if what == "learn":
                memory.learn(question, ["d"], ["d"], user=question)
                pipe.send(question)
            elif what == "wait":
                while not (hits := memory.recall(question, 1)) or question not in hits[0].reason:
                    time.sleep(0.005)
                pipe.send(question)
            elif what == "stream":
                for number in range(10**9):
                    memory.learn(f"{question} {os.getpid()} {number}", ["d"], ["d"], user=number)
                    pipe.send(f"{question} {os.getpid()} {number}")
            elif what == "questions":
                pipe.send([text for text in memory._snapshot.texts if text])
            elif what == "restored":
                while not memory.health.restored:
                    time.sleep(0.01)
                pipe.send(memory.health)
            else:
                return


if __name__ == "__main__":
    raise SystemExit("python -m benchmarks memory_ledger")
