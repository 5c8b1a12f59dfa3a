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
) -> None:
    """Delete the lists and clicks of a client, and print how many lists there were; services count again without."""
    from kinrank.serve.audit import ACTOR
    from kinrank.serve.database import open_database
    from kinrank.serve.events.clients import ClientHashes
    from kinrank.serve.events.store import EventStore

    ACTOR.set(getpass.getuser())
    check_exists(address)
    database = open_database(address)
    try:
        store = EventStore(database, min_clients)
        hashes = ClientHashes(store, b"" if client_secret is None else Path(client_secret).read_bytes())
        lists = store.forget([value for each in client for value in hashes.of_all_periods(each)])
    finally:
        database.close()
    hint = "" if lists or client_secret else "; if kinrank serve has a --client-secret, pass the same"
    console.info(f"{database}: deleted {lists} lists and their clicks{hint}")
    typer.echo(lists)
