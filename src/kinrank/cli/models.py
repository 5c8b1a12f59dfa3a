"""``kinrank models``: list the published versions of a model, and choose which one is in use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.options import AsJson, StoreAddress
from kinrank.errors import ParameterError

if TYPE_CHECKING:
    from kinrank.store.versions import VersionStore


def models(
    address: StoreAddress,
    use: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Version to put into use, such as an earlier one to go back.")
    ] = None,
    canary: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION:SHARE", help="Version that ranks a share of the queries, such as 13:0.05; or none."
        ),
    ] = None,
    shadow: Annotated[
        str | None,
        typer.Option(metavar="VERSION:SHARE", help="Version that is compared on a share of the queries; or none."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the published versions of a model, and choose which one is in use."""
    from kinrank.store.versions import CANARY, CURRENT, SHADOW, VersionStore

    store = VersionStore(address)
    for role, wanted in ((CURRENT, use), (CANARY, canary), (SHADOW, shadow)):
        if wanted is not None:
            _assign(store, role, wanted)
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


def _assign(store: VersionStore, role: str, wanted: str) -> None:
    from kinrank.store.versions import CANARY, CURRENT, Arm

    if wanted == "none" and role != CURRENT:
        store.assign(role, None)
        console.info(f"{store}: no version is {role}")
        return
    name, _, share = wanted.partition(":")
    if role == CANARY and not share:
        raise ParameterError(f"a canary needs a share: write VERSION:SHARE, such as {name[:100]}:0.05")
    try:
        portion = float(share or 1)
    except ValueError:
        raise ParameterError(f"write VERSION:SHARE, such as 13:0.05, got {wanted[:100]!r}") from None
    version = store.find(name)
    store.assign(role, Arm(version.name, portion))
    console.info(f"{store}: version {version.number} ({version.fitted}) is {role}")
