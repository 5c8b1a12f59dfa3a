"""``kinrank convert``: convert queries between formats."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.columns import table_columns
from kinrank.data.source import FORMATS, Source, write_sources


def convert(
    sources: Annotated[list[str], typer.Argument(metavar="IN", help=f"Input: {FORMATS}.")],
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="Output; a kinrank folder if it has no suffix. Overwritten if present.")
    ],
    n_features: Annotated[
        int | None,
        typer.Option(
            "--n-features", min=1, help="Number of features in LETOR files; needed if the last ones are all 0."
        ),
    ] = None,
) -> None:
    """Convert queries between tables, LETOR files and kinrank folders; several inputs are concatenated."""
    inputs = [Source(path, n_features, table_columns.get()) for path in sources]
    counts = [source.n_rows for source in inputs]
    known_counts = [count for count in counts if count is not None]
    with console.progress("converting", sum(known_counts) if len(known_counts) == len(counts) else None) as advance:
        written = write_sources(inputs, out, advance)
    console.info(f"{out}: {written!r}")
