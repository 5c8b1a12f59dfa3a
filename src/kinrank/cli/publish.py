"""``kinrank publish``: upload a model as the next numbered version."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.cli import console


def publish(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model folder written by kinrank train.")],
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="Store of versions: a folder, or s3://bucket/models.")
    ],
) -> None:
    """Upload a model as the next numbered version, put it into use, and print its number."""
    from kinrank.store.versions import CURRENT, Arm, VersionStore

    store = VersionStore(address)
    version = store.publish(model)
    store.set_rollout({CURRENT: Arm(version.name)})
    console.info(f"{store}: version {version.number} ({version.fitted}) is {CURRENT}")
    typer.echo(version.number)
