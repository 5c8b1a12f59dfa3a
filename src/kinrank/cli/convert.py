"""``kinrank convert``: queries from any form to any other."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.cli import files, messages


def convert(
    sources: Annotated[list[str], typer.Argument(metavar="IN", help=f"What to read: {files.FORMS}.")],
    out: Annotated[
        str, typer.Argument(metavar="OUT", help="What to write; without a suffix, a kinrank folder. Replaced if there.")
    ],
    n_features: Annotated[
        int | None,
        typer.Option("--features", min=1, help="LETOR: how many features, where the last are 0 in all of a file."),
    ] = None,
    qid: Annotated[str, typer.Option(help="Parquet: the column of query ids.")] = "qid",
    y: Annotated[str, typer.Option(help="Parquet: the column of grades.")] = "y",
    doc_id: Annotated[str, typer.Option(help="Parquet: the column of document ids.")] = "doc_id",
) -> None:
    """Convert queries between LETOR, Parquet and kinrank folders; several inputs become one set."""
    inputs = [files.Source(path, n_features, qid, y, doc_id) for path in sources]
    counts = [source.n_rows for source in inputs]
    known = [count for count in counts if count is not None]
    with messages.working("converting", sum(known) if len(known) == len(counts) else None) as advance:
        written = files.write(inputs, out, advance)
    messages.say(f"{out}: {written!r}")
