"""``kinrank publish``: upload a model as the next numbered version."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.options import StoreAddress
from kinrank.errors import ParameterError


def publish(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model folder written by kinrank train.")],
    address: StoreAddress,
    canary: Annotated[
        float | None, typer.Option(metavar="SHARE", help="Share of the queries to rank with it, such as 0.05.")
    ] = None,
    shadow: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Share of the queries to compare it on, without answering with it."),
    ] = None,
) -> None:
    """Upload a model as the next numbered version, put it into use, and print its number."""
    from kinrank.store.versions import CANARY, CURRENT, SHADOW, Arm, VersionStore

    role, share = CURRENT, 1.0
    if canary is not None and shadow is not None:
        raise ParameterError("a version cannot be the canary and the shadow: give --canary or --shadow, not both")
    if canary is not None:
        role, share = CANARY, canary
    elif shadow is not None:
        role, share = SHADOW, shadow
    Arm("", share)  # refuse an invalid share before the upload
    store = VersionStore(address)
    store.check_role(role)
    version = store.publish(model)
    store.assign(role, Arm(version.name, share))
    console.info(f"{store}: version {version.number} ({version.fitted}) is {role}")
    typer.echo(version.number)
