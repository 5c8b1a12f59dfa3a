"""``kinrank memory``: look into a memory, fill it from other systems, write it down, and forget."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.options import AsJson
from kinrank.errors import DataError, ParameterError

if TYPE_CHECKING:
    from kinrank.memory.memory import Memory
    from kinrank.memory.tables import VoteTable

Address = Annotated[
    str, typer.Argument(metavar="MEMORY", help="The file of a memory, or its address, postgresql://...")
]
Columns = Annotated[
    str,
    typer.Option(
        metavar="NAME=COLUMN,...",
        help="Columns that are not found by their names: question, document, vote, user, time, shown.",
    ),
]
_tenant: ContextVar[str] = ContextVar("tenant", default="")
_encoder: ContextVar[str] = ContextVar("encoder", default="ngrams")
_DAYS = 7  # that `stats` shows one by one


def options(
    tenant: Annotated[str, typer.Option(metavar="NAME", help="Whose memory it is, if many share a database.")] = "",
    encoder: Annotated[
        str, typer.Option(metavar="NAME", help="What makes vectors of questions, such as openai:http://HOST/v1#MODEL.")
    ] = "ngrams",
) -> None:
    """Remember whose memory a command is about, and what encodes its questions."""
    _tenant.set(tenant)
    _encoder.set(encoder)


@contextmanager
def _opened(address: str, *, new: bool = False) -> Iterator[Memory]:
    from kinrank import Memory

    if "://" not in address and not new and not Path(address).exists():
        raise ParameterError(f"{address}: no such file: pass the path that Memory(...) or kinrank serve --memory has")
    with console.progress(f"reading {address}"):
        memory = Memory(address, tenant=_tenant.get(), encoder=_encoder.get())
    try:
        yield memory
    finally:
        memory.close()


def stats(address: Address, as_json: AsJson = False) -> None:
    """Show how much a memory knows: questions, documents, people, and votes by day and kind."""
    with _opened(address) as memory:
        found = memory.stats()
    if as_json:
        days = {str(day): counts for day, counts in found.days.items()}
        typer.echo(json.dumps(asdict(found) | {"days": days}, indent=2))
        return
    for name, value in {
        "questions": found.questions,
        "documents": found.documents,
        "people": found.people,
        **{f"votes, {kind}": count for kind, count in found.votes.items()},
        "megabytes": round(found.bytes / 1e6, 1),
    }.items():
        console.print_result(f"{name:18} {value:,}")
    if found.days:
        table = Table(box=None, pad_edge=False)
        for title in ("day", *found.votes):
            table.add_column(title, justify="left" if title == "day" else "right")
        for day, counts in list(found.days.items())[-_DAYS:]:
            table.add_row(str(day), *(f"{counts.get(kind, 0):,}" for kind in found.votes))
        console.print_result("")
        console.print_result(table)


def list_(
    address: Address,
    containing: Annotated[str, typer.Option(metavar="TEXT", help="Only questions with this text in them.")] = "",
    most: Annotated[int, typer.Option(min=1, help="How many questions to show, latest first.")] = 20,
) -> None:
    """List the questions that a memory knows, with their votes."""
    with _opened(address) as memory:
        questions = memory.questions(containing, most)
    table = Table(box=None, pad_edge=False)
    for title in ("votes", "documents", "people", "last", "question"):
        table.add_column(title, justify="right" if title in ("votes", "documents", "people") else "left")
    for each in questions:
        counts = (f"{count:,}" for count in (each.votes, each.documents, each.people))
        table.add_row(*counts, str(_date(each.day)), each.text)
    console.print_result(table)


def show(address: Address, question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question.")]) -> None:
    """Show what was said of each document for a question."""
    with _opened(address) as memory:
        votes = list(memory.votes(question))
    if not votes:
        raise DataError(f"{address}: nothing is known for {question!r}: kinrank memory list shows what is")
    counts: dict[str, dict[str, int]] = {}
    for vote in votes:
        of_document = counts.setdefault(vote.document, {})
        of_document[vote.kind] = of_document.get(vote.kind, 0) + 1
    for document, kinds in sorted(counts.items(), key=lambda each: -sum(each[1].values())):
        said = ", ".join(f"{kind} {count:,} {'time' if count == 1 else 'times'}" for kind, count in kinds.items())
        console.print_result(f"{document}: {said}")


def why(
    address: Address,
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="The question that is asked.")],
    document: Annotated[str, typer.Option(metavar="ID", help="The document.")],
) -> None:
    """Show which similar questions speak for and against a document, and how much each counts."""
    with _opened(address) as memory:
        console.print_result(str(memory.why(question, document)))


def replay(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Votes with times, as import reads them.")],
    columns: Columns = "",
) -> None:
    """Ask the questions of a log again in their order, and show what memory gains next to its rivals."""
    from kinrank.memory.replay import replay as ask_again
    from kinrank.memory.replay import searches

    table = _read(file, columns)
    total = len(searches(table.votes))
    with _opened(":memory:", new=True) as memory, console.progress(f"asking {file}", total=total) as done:
        found = ask_again(table.votes, memory, done)
    console.print_result(str(found))


def import_(
    address: Address,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Thumbs, citations, choices or answers with their sources: .csv, .tsv, .jsonl, .ndjson or .parquet.",
        ),
    ],
    columns: Columns = "",
) -> None:
    """Learn votes from a file, and print how many there were. The same file counts once."""
    table = _read(file, columns)
    with _opened(address, new=True) as memory, console.progress(f"learning {file}", total=len(table.votes)) as done:
        memory.learn_votes(table.votes, source=table.fingerprint, progress=done)
        console.info(f"{address}: {len(memory):,} questions are known")
    typer.echo(len(table.votes))


def _read(file: str, columns: str) -> VoteTable:
    """Read votes, and say what was found."""
    from kinrank.memory.tables import read_votes

    with console.progress(f"reading {file}"):
        table = read_votes(file, _parsed(columns))
    found = ", ".join(f"{what} from {column!r}" for what, column in table.columns.items())
    console.info(f"{file}: {len(table.votes):,} votes; {found}")
    for reason, count in table.left_out.items():
        console.info(f"{file}: left out {count:,} rows with {reason}")
    return table


def _parsed(columns: str) -> dict[str, str]:
    parts = [part.partition("=") for part in columns.split(",") if part]
    if any(not name or not equals or not column for name, equals, column in parts):
        raise ParameterError(f"--columns takes NAME=COLUMN,..., such as document=answer_id, got {columns!r}")
    return {name: column for name, _, column in parts}


def export(
    address: Address,
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write: .csv, .tsv, .jsonl or .parquet.")],
) -> None:
    """Write all votes of a memory to a file that import reads, and print how many there are; people are numbers."""
    from kinrank.memory.tables import write_votes

    with _opened(address) as memory, console.progress(f"writing {file}"):
        written = write_votes(memory.votes(), file)
    typer.echo(written)


def forget(
    address: Address,
    user: Annotated[str | None, typer.Option(metavar="ID", help="Person whose votes are forgotten.")] = None,
    question: Annotated[str | None, typer.Option(metavar="TEXT", help="Question to forget.")] = None,
    document: Annotated[str | None, typer.Option(metavar="ID", help="Document to forget.")] = None,
    before: Annotated[
        str | None, typer.Option(metavar="DATE", help="First day whose votes are kept, such as 2026-01-31.")
    ] = None,
) -> None:
    """Forget votes that match all options (person, question, document, age), and print how many there were."""
    try:
        day = None if before is None else date.fromisoformat(before)
    except ValueError:
        raise ParameterError(f"--before takes a date, such as 2026-01-31, got {before!r}") from None
    seconds = None if day is None else (day - date(1970, 1, 1)).total_seconds()
    with _opened(address) as memory:
        typer.echo(memory.forget(user=user, question=question, document=document, before=seconds))


def _date(day: int) -> date:
    return date.fromordinal(date(1970, 1, 1).toordinal() + day)
