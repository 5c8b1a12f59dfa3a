"""``kinrank models``: list the published versions of a model, and choose which one is in use."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.options import AsJson


def models(
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Store of versions: a folder, or s3://bucket/models.")
    ],
    use: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Version to put into use, such as an earlier one to go back.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the published versions of a model, and choose which one is in use."""
    from kinrank.store.versions import CURRENT, Arm, VersionStore

    store = VersionStore(address)
    if use is not None:
        version = store.find(use)
        store.set_rollout({CURRENT: Arm(version.name)})
        console.info(f"{store}: version {version.number} ({version.fitted}) is {CURRENT}")
    rollout = store.rollout()
    rows: list[dict[str, Any]] = [
        {
            "number": each.number,
            "version": each.fitted,
            "written": None if each.written is None else each.written.isoformat(timespec="seconds"),
            "bytes": each.size,
            "in_use": [role for role, arm in rollout.items() if arm.version == each.name],
        }
        for each in store.versions()
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("number", "version", "written", "bytes", "in use"):
        table.add_column(title)
    for row in rows:
        *shown, roles = row.values()
        table.add_row(*("incomplete" if value is None else str(value) for value in shown), ", ".join(roles))
    console.print_result(table)
