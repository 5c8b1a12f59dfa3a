"""``kinrank audit``: what changed what a service ranks, and who did it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.databases import Address, check_exists
from kinrank.cli.options import AsJson


def audit(
    address: Address,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Number of entries, the latest ones.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List what changed what is ranked: models, keys, judgments and rules, the newest first."""
    from kinrank.serve.audit import AuditLog

    check_exists(address)
    log = AuditLog(address)
    try:
        entries = log.read(limit=limit)
    finally:
        log.close()
    if as_json:
        typer.echo(json.dumps([vars(entry) for entry in entries], indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for title in ("time", "actor", "action", "subject", "detail"):
        table.add_column(title)
    for entry in entries:
        when = datetime.fromtimestamp(entry.time, UTC).isoformat(sep=" ", timespec="seconds")
        table.add_row(when, entry.actor, entry.action, entry.subject, entry.detail)
    console.print_result(table)
