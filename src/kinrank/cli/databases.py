"""The database of a service, as the argument of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.errors import ParameterError

Address = Annotated[
    str, typer.Argument(metavar="ADDRESS", help="Database of kinrank serve, sqlite:///PATH or postgresql://...")
]


def check_exists(address: str) -> None:
    """Raise if there is no file at an address: opening it would create one, and what is asked of it is not there."""
    from kinrank.serve.database import open_database

    database = open_database(address)
    if not database.exists:
        raise ParameterError(
            f"{database}: no such file; pass the address of kinrank serve --judgments, which creates it"
        )
