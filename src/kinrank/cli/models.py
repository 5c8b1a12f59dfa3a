"""``kinrank models``: upload versions of a model, list them, and choose which one is in use."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.options import AsJson
from kinrank.errors import ParameterError

if TYPE_CHECKING:
    from kinrank.store.versions import VersionStore


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
    canary: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION:SHARE",
            help="Version that ranks a share of the queries, such as 13:0.05; or none. With --publish, the share.",
        ),
    ] = None,
    shadow: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION:SHARE",
            help="Version that is compared on a share of the queries; or none. With --publish, the share.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the published versions of a model, upload another, and choose which one is in use."""
    from kinrank.store.versions import CANARY, CURRENT, SHADOW, VersionStore

    store = VersionStore(address)
    if publish is not None:
        _publish(store, publish, {CURRENT: use, CANARY: canary, SHADOW: shadow})
        return
    for role, wanted in ((CURRENT, use), (CANARY, canary), (SHADOW, shadow)):
        if wanted is not None:
            _assign(store, role, wanted)
    rollout = store.rollout()
    rows: list[dict[str, Any]] = [
        {
            "number": version.number,
            "version": version.fitted,
            "written": None if version.written is None else version.written.isoformat(timespec="seconds"),
            "bytes": version.size,
            "in_use": [role for role, arm in rollout.items() if arm.version == version.name],
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
        *shown, roles = row.values()
        table.add_row(*("incomplete" if value is None else str(value) for value in shown), ", ".join(roles))
    console.print_result(table)


def _publish(store: VersionStore, model: str, wanted: dict[str, str | None]) -> None:
    """Upload a model and give it a role: the current version, or the canary or shadow of a share of the queries."""
    from kinrank.rankers.choices.stored import with_evidence_inside
    from kinrank.store.versions import CURRENT, Arm

    shares = {role: share for role, share in wanted.items() if share is not None}
    if len(shares) > 1 or CURRENT in shares:
        raise ParameterError("--publish takes --canary SHARE, --shadow SHARE or neither, which puts the model into use")
    role, share = next(iter(shares.items()), (CURRENT, "1"))
    arm = Arm("", _share(share, share, "SHARE, such as 0.05"))  # refuses an invalid share before the upload
    store.check_role(role)
    with with_evidence_inside(model) as whole:
        version = store.publish(whole)
    store.assign(role, Arm(version.name, arm.share))
    console.info(f"{store}: version {version.number} ({version.fitted}) is {role}")
    typer.echo(version.number)


def _share(text: str, given: str, form: str = "VERSION:SHARE, such as 13:0.05") -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"write {form}, got {given[:100]!r}") from None


def _assign(store: VersionStore, role: str, wanted: str) -> None:
    from kinrank.store.versions import CANARY, CURRENT, Arm

    if wanted == "none" and role != CURRENT:
        store.assign(role, None)
        console.info(f"{store}: no version is {role}")
        return
    name, _, share = wanted.partition(":")
    if role == CANARY and not share:
        raise ParameterError(f"a canary needs a share: write VERSION:SHARE, such as {name[:100]}:0.05")
    portion = _share(share or "1", wanted)
    version = store.find(name)
    store.assign(role, Arm(version.name, portion))
    console.info(f"{store}: version {version.number} ({version.fitted}) is {role}")
