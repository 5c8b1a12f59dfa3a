"""``kinrank split``: split queries into training, validation and test queries."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.inputs import read_queries
from kinrank.cli.options import Group, Seed
from kinrank.data.source import FORMATS
from kinrank.errors import ParameterError

SHARES = {2: (0.8, 0.2), 3: (0.7, 0.1, 0.2)}
"""Default shares, by the number of parts."""


def split(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries: {FORMATS}.")],
    parts: Annotated[
        list[str],
        typer.Argument(metavar="PART", help="File of each part, such as train.parquet test.parquet; overwritten."),
    ],
    shares: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE,SHARE", help="Share of each part.", show_default="0.8,0.2 or, of three parts, 0.7,0.1,0.2"
        ),
    ] = None,
    group: Group = None,
    time: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Query column with the time: the earliest queries are the first part."),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Split queries at random, by groups that stay together, or by time; the candidates of a query stay together."""
    from kinrank.data.source import output_format, write_queries
    from kinrank.data.split import split_queries

    for path in parts:
        output_format(path)  # raises on a wrong name before the work
    wanted = _shares(shares, len(parts))
    split_parts = split_queries(read_queries(data), wanted, group=group, time=time, seed=seed)
    for path, queries in zip(parts, split_parts, strict=True):
        write_queries(queries, path)
        console.info(f"{path}: {queries!r}")


def _shares(text: str | None, n_parts: int) -> tuple[float, ...]:
    if text is None:
        if n_parts not in SHARES:
            raise ParameterError(f"--shares is needed for {n_parts} parts: two and three parts have defaults")
        return SHARES[n_parts]
    try:
        shares = tuple(float(share) for share in text.split(","))
    except ValueError:
        raise ParameterError(f"--shares must be numbers such as 0.8,0.2, got {text!r}") from None
    if len(shares) != n_parts:
        raise ParameterError(f"--shares must name one share for each of the {n_parts} parts, got {text!r}")
    return shares
