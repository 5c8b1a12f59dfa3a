"""``kinrank forget``: delete what a service has stored of a client."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.databases import Address, check_exists


def forget(
    address: Address,
    client: Annotated[
        list[str], typer.Option(metavar="ID", help="Client to forget, as it was named to the service; repeatable.")
    ],
    client_secret: Annotated[
        str | None, typer.Option(metavar="FILE", help="File of kinrank serve --client-secret, if it has one.")
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
    from kinrank.serve.audit import ACTOR, ENDED, AuditLog
    from kinrank.serve.database import open_database
    from kinrank.serve.events.clients import ClientHashes
    from kinrank.serve.events.store import EventStore
    from kinrank.serve.forgetting import asked_by, asked_by_few, held_queries

    ACTOR.set(getpass.getuser())
    check_exists(address)
    database = open_database(address)
    try:
        store = EventStore(database, min_clients)
        hashes = ClientHashes(store, b"" if client_secret is None else Path(client_secret).read_bytes())
        known = [value for each in client for value in hashes.of_all_periods(each)]
        asked = asked_by(database, known)
        lists = store.forget(known)
        few = asked_by_few(database, asked, min_clients)
        audit = AuditLog(address)
        in_use = {name: version for name, version in audit.latest("model").items() if version != ENDED}
        audit.close()
    finally:
        database.close()
    hint = "" if lists or client_secret else "; if kinrank serve has a --client-secret, pass the same"
    console.info(f"{database}: deleted {lists} lists and their clicks{hint}")
    for path in folder or ():
        held = held_queries(path, few)
        refit = "write it again from logs and judgments without them" if held else "it can stay"
        console.info(
            f"{path}: holds {held} of the {len(few)} queries that this client and too few others asked: {refit}"
        )
    if not folder and len(few):
        used = ", ".join(f"{name} ({version})" for name, version in in_use.items()) or "unknown"
        console.info(
            f"models and evidence from logs may hold the {len(few)} queries that this client and too few others asked: "
            f"name their folders with --folder; models in use: {used}"
        )
    typer.echo(lists)
