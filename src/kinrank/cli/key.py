"""``kinrank key``: a key for the service."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from kinrank.cli import messages


class RoleName(StrEnum):
    """The roles of `kinrank.serve.keys.Role`, without importing the service for the sake of --help."""

    QUERY = "query"
    ADMIN = "admin"


def key(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where the digest of the key is added.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose key it is; it appears in logs.")],
    role: Annotated[RoleName, typer.Option(help="Ranking and searching, or models and judgments.")] = RoleName.QUERY,
) -> None:
    """Make a key for the service and print it; only its digest is kept."""
    from kinrank.serve.keys import Role, add_key

    typer.echo(add_key(file, name, Role(role)))
    messages.say(f"{file}: key {name!r} for {role.value}; it is shown only here")
