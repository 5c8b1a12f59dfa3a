"""``kinrank data``: convert and split queries."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.inputs import read_queries
from kinrank.cli.options import Group, Seed, table_columns
from kinrank.data.source import FORMATS, Source, write_sources
from kinrank.errors import DataError, ParameterError


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
    families: Annotated[
        bool, typer.Option("--families/--no-families", help="Keep queries with similar texts together.")
    ] = False,
    time: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Query column with the time: the earliest queries are the first part."),
    ] = None,
    seed: Seed = 0,
) -> None:
    """Split queries at random, by groups that stay together, or by time; the candidates of a query stay together."""
    import numpy as np

    from kinrank.data.source import output_format, write_queries
    from kinrank.data.split import note_on_large_group, split_queries
    from kinrank.study._folds import COLUMN, add_families
    from kinrank.study._leaks import without_copies

    for path in parts:
        output_format(path)  # raises on a wrong name before the work
    wanted = _shares(shares, len(parts))
    if families and time is not None:
        raise ParameterError("--families and --time cannot be combined: similar queries are asked at all times")
    queries = read_queries(data)
    related = add_families([queries], families, group, len(parts))
    together = group if related.similarity is None else related.parts[0].query_columns[COLUMN]
    for note in (related.note, None if time else note_on_large_group(queries, together, np.array(wanted))):
        if note:
            console.info(f"{data}: {note}")
    made = split_queries(queries, wanted, group=together, time=time, seed=seed)
    split_parts = without_copies(queries, made, group=group, move=time is None)
    n_copies = sum(np.isin(part.qid, kept.qid, invert=True).sum() for part, kept in zip(made, split_parts, strict=True))
    if n_copies:
        console.info(
            f"{data}: {n_copies:,} queries have the text or the feature rows of one in an earlier part: "
            f"{'left out' if time is not None else 'moved there'}"
        )
    for path, part in zip(parts, split_parts, strict=True):
        if not len(part):
            raise DataError(f"{path}: no query is left that is not also in an earlier part: split other queries")
    for path, part in zip(parts, split_parts, strict=True):
        write_queries(part, path)
        console.info(f"{path}: {part!r}")


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
