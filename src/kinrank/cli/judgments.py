"""``kinrank judgments``: export, import and withdraw the judgments of a service."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.databases import Address, check_exists


def judgments(
    address: Address,
    model: Annotated[str, typer.Option(metavar="NAME", help="Name of the model in the service.")] = "default",
    export: Annotated[
        str | None, typer.Option(metavar="FILE", help="Parquet file to write all judgments to, for kinrank train.")
    ] = None,
    import_log: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Judgment log of an earlier version to read, such as default.log."),
    ] = None,
    withdraw_query: Annotated[
        str | None, typer.Option(metavar="QID", help="Query whose judgments are withdrawn.")
    ] = None,
    withdraw_source: Annotated[
        str | None, typer.Option(metavar="SOURCE", help="Source whose judgments are withdrawn.")
    ] = None,
    compact_through: Annotated[
        int | None,
        typer.Option(min=0, metavar="REVISION", help="Revision up to which marks of withdrawn judgments are removed."),
    ] = None,
) -> None:
    """Export, import and withdraw the judgments of a service, and print their revision."""
    from kinrank.data.parquet import write_parquet
    from kinrank.serve.audit import ACTOR
    from kinrank.serve.judgment_files import exported_queries, read_log
    from kinrank.serve.judgment_store import open_store
    from kinrank.serve.live_judgments import merge_records

    ACTOR.set(getpass.getuser())
    if import_log is None:
        check_exists(address)
    store = open_store(address)
    try:
        if import_log is not None:
            rows = read_log(import_log)
            store.append(model, rows, merge_records)
            console.info(f"{import_log}: {len(rows)} judged queries")
        if withdraw_query is not None or withdraw_source is not None:
            withdrawn, _ = store.delete(model, query=withdraw_query, source=withdraw_source)
            console.info(f"{store.database}: withdrew the judgments of {withdrawn} pairs of query and source")
        if compact_through is not None:
            console.info(f"{store.database}: removed {store.compact(model, compact_through)} marks")
        if export is not None:
            queries, revision = exported_queries(store, model)
            write_parquet(queries, export)
            console.info(f"{export}: {len(queries)} judged queries; train with --judgments-through {revision}")
        typer.echo(store.revision(model))
    finally:
        store.close()
