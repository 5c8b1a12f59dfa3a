"""``kinrank key``: create an API key for the service."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kinrank.cli import console


class RoleName(StrEnum):
    """The values of `kinrank.serve.keys.Role`, repeated here so that ``--help`` does not import the service."""

    QUERY = "query"
    EVENTS = "events"
    EDITOR = "editor"
    ADMIN = "admin"


def key(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Key file; the hash of the new key is appended.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the key's owner, shown in logs.")],
    role: Annotated[
        RoleName,
        typer.Option(
            help="query ranks and searches, editor also manages rules, admin also models and judgments; events sends "
            "clicks."
        ),
    ] = RoleName.QUERY,
) -> None:
    """Create an API key for the service and print it; only its hash is stored."""
    from kinrank.serve.keys import Role, add_key

    typer.echo(add_key(file, name, Role(role)))
    console.info(f"{file}: added key {name!r} with role {role.value!r}; the key is not shown again")
