"""``kinrank admin``: keys, models, judgments, texts in an index, and clients to forget."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.options import AsJson
from kinrank.errors import ParameterError
from kinrank.registry.notation import parse_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinrank.engines.chosen_for import Choice, TextLimits
    from kinrank.store.versions import ModelVersion, VersionStore


Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="Database of kinrank serve, sqlite:///PATH or postgresql://...")
]


def check_exists(address: str) -> None:
    """Raise if there is no file at an address: opening it would create one, and what is asked of it is not there."""
    from kinrank.serve._database import open_database

    database = open_database(address)
    if not database.exists:
        raise ParameterError(
            f"{database}: no such file; pass the address of kinrank serve --judgments, which creates it"
        )


class _RoleName(StrEnum):
    """The values of `kinrank.serve._keys.Role`, repeated here so that ``--help`` does not import the service."""

    QUERY = "query"
    EVENTS = "events"
    ADMIN = "admin"


def key(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Key file; the hash of the new key is appended.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key's owner, shown in logs.")],
    role: Annotated[
        _RoleName,
        typer.Option(help="query ranks and searches, admin also manages models and judgments; events sends clicks."),
    ] = _RoleName.QUERY,
) -> None:
    """Create an API key for the service and print it; only its hash is stored."""
    from kinrank.serve._keys import Role, add_key

    typer.echo(add_key(file, name, Role(role)))
    console.info(f"{file}: added key {name!r} with role {role.value!r}; the key is not shown again")


def models(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Store of versions: a folder, or s3://bucket/models.")
    ],
    publish: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Model folder to upload as the next version, which is put into use; its number is printed.",
        ),
    ] = None,
    use: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Version to put into use, such as an earlier one to go back.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the published versions of a model, upload another, and choose which one is in use."""
    from kinrank.store.versions import VersionStore

    store = VersionStore(address)
    if publish is not None:
        if use is not None:
            raise ParameterError("--publish puts the model into use: leave out --use")
        _publish(store, publish)
        return
    if use is not None:
        _use(store, store.find(use))
    current = store.current()
    rows: list[dict[str, Any]] = [
        {
            "number": version.number,
            "version": version.fitted,
            "written": None if version.written is None else version.written.isoformat(timespec="seconds"),
            "bytes": version.size,
            "in_use": version.name == current,
        }
        for version in store.versions()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("number", "version", "written", "bytes", "in use"):
        table.add_column(title)
    for row in rows:
        *shown, in_use = row.values()
        table.add_row(*("incomplete" if value is None else str(value) for value in shown), "yes" if in_use else "")
    console.print_result(table)


def _publish(store: VersionStore, model: str) -> None:
    """Upload a model and put it into use."""
    from kinrank.rankers.kin._chosen import with_evidence_inside

    with with_evidence_inside(model) as whole:
        version = store.publish(whole)
    _use(store, version)
    typer.echo(version.number)


def _use(store: VersionStore, version: ModelVersion) -> None:
    store.use(version)
    console.info(f"{store}: version {version.number} ({version.fitted}) is in use")


def judgments(
    address: Address,
    model: Annotated[str, typer.Option(metavar="NAME", help="Name of the model in the service.")] = "default",
    export: Annotated[
        str | None, typer.Option(metavar="FILE", help="Parquet file to write all judgments to, for kinrank train.")
    ] = None,
    withdraw_query: Annotated[
        str | None, typer.Option(metavar="QID", help="Query whose judgments are withdrawn.")
    ] = None,
    withdraw_source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Source whose judgments are withdrawn.")
    ] = None,
) -> None:
    """Export and withdraw the judgments of a service, and print their revision."""
    from kinrank.data.parquet import write_parquet
    from kinrank.serve._judgments import exported_queries, open_store

    check_exists(address)
    store = open_store(address)
    try:
        if withdraw_query is not None or withdraw_source is not None:
            withdrawn, _ = store.delete(model, query=withdraw_query, source=withdraw_source)
            console.info(f"{store.database}: withdrew the judgments of {withdrawn} pairs of query and source")
        if export is not None:
            queries, revision = exported_queries(store, model)
            write_parquet(queries, export)
            console.info(f"{export}: {len(queries)} judged queries; train with --judgments-through {revision}")
        typer.echo(store.position(model)[0])
    finally:
        store.close()


def forget(
    address: Address,
    client: Annotated[
        list[str], typer.Option(metavar="ID", help="Client to forget, as it was named to the service; repeatable.")
    ],
    client_secret: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of kinrank serve --set client_secret, if it has one.")
    ] = None,
    min_clients: Annotated[int, typer.Option(min=1, help="As in kinrank serve.")] = 3,
    folder: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR", help="Folder of a model or of evidence to look for what the client asked; repeatable."
        ),
    ] = None,
) -> None:
    """Delete the lists and clicks of a client, and print how many lists there were; services count again without."""
    from kinrank.serve._database import open_database
    from kinrank.serve._events.clients import ClientHashes, asked_by, asked_by_few, held_queries
    from kinrank.serve._events.store import EventStore

    check_exists(address)
    database = open_database(address)
    try:
        store = EventStore(database, min_clients)
        hashes = ClientHashes(store, b"" if client_secret is None else Path(client_secret).read_bytes())
        known = [value for each in client for value in hashes.of_all_periods(each)]
        asked = asked_by(database, known)
        lists = store.forget(known)
        few = asked_by_few(database, asked, min_clients)
    finally:
        database.close()
    hint = "" if lists or client_secret else "; if kinrank serve has a client_secret, pass --client-secret"
    console.info(f"{database}: deleted {lists} lists and their clicks{hint}")
    for path in folder or ():
        held = held_queries(path, few)
        refit = "write it again from logs and judgments without them" if held else "it can stay"
        console.info(
            f"{path}: holds {held} of the {len(few)} queries that this client and too few others asked: {refit}"
        )
    if not folder and len(few):
        console.info(
            f"models and evidence from logs may hold the {len(few)} queries that this client and too few others asked: "
            "name their folders with --folder"
        )
    if len(few):
        console.info("texts in an index may be among them: run kinrank admin index again, which removes them")
    typer.echo(lists)


def index(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="Judgments (.parquet, .csv, .tsv), or the database of kinrank serve --judgments."
        ),
    ],
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="Index to write to, ENGINE+http://HOST:PORT/INDEX.")],
    field: Annotated[str, typer.Option(metavar="NAME", help="Field of the texts.")] = "chosen_for",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Limit of the texts: min_clients=3, days=365, half_life=90, texts=20 of a document (0 removes all), "
            "length=100 characters; model=NAME of the service; or parameter of the engine client; repeatable.",
        ),
    ] = None,
) -> None:
    """Write the texts of queries that each document was chosen for to a field of the index; run it again to update."""
    from dataclasses import fields

    from kinrank.engines import connect
    from kinrank.engines._logger import read_judgments
    from kinrank.engines.chosen_for import TextLimits, judged_choices
    from kinrank.engines.lucene import LuceneEngine

    names = {each.name for each in fields(TextLimits)}
    own, others = list[str](), list[str]()
    for text in settings or ():
        (own if text.partition("=")[0].strip() in names else others).append(text)
    limits = TextLimits(**parse_settings(TextLimits, own))
    client = parse_settings(None, others)
    model = str(client.pop("model", "default"))
    with console.progress("reading"):
        choices = _live_choices(source, model, limits) if "://" in source else judged_choices(read_judgments(source))
        texts = limits.of(choices)
    with connect(engine, **client) as opened, console.progress("writing", len(texts)) as advance:
        if not isinstance(opened, LuceneEngine):
            raise ParameterError(f"{engine}: kinrank admin index writes to Elasticsearch and OpenSearch")
        counts = opened.write_chosen_for(texts, field, advance)
    console.info(
        f"{field}: wrote the texts of {counts.written:,} documents; {counts.unchanged:,} had them, "
        f"{counts.removed:,} lost theirs, {counts.absent:,} are not in the index"
    )


def _live_choices(address: str, model: str, limits: TextLimits) -> Iterator[Choice]:
    """Yield what people chose, by the database of a service; older choices count less."""
    from kinrank.engines.chosen_for import Choice
    from kinrank.memory.evidence import latest_day
    from kinrank.serve._database import open_database
    from kinrank.serve._events.store import EventStore

    check_exists(address)
    database = open_database(address)
    today = latest_day() - 1
    try:
        for document, text, day, count in EventStore(database, limits.min_clients).chosen_texts(
            model, today - limits.days
        ):
            yield Choice(document, text, count * 0.5 ** ((today - day) / limits.half_life))
    finally:
        database.close()
