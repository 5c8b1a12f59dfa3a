"""``kinrank describe``: print the description of each query, or its nearest queries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import console
from kinrank.cli.inputs import read_queries
from kinrank.data.source import FORMATS
from kinrank.registry.notation import parse_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinrank.arrays import Float32
    from kinrank.data.queryset import QuerySet
    from kinrank.describe import Describer


def describe(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries with candidates: {FORMATS}.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Parameter of Describer, such as blocks=...; repeatable."),
    ] = None,
    nearest: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Print the N nearest queries instead of the description."),
    ] = None,
) -> None:
    """Print the description of each query, as the ranker kin makes it, or its nearest queries, one query per line."""
    from kinrank.describe import Describer, make_describer

    given = parse_settings(Describer, settings or [])
    describer = Describer(**given) if given.keys() - {"reference"} else make_describer("auto", **given)
    queries = read_queries(data)
    with console.progress("describing"):
        queries = _with_vectors(queries)
        points = describer.fit(queries).transform(queries)
    lines = _numbers(queries, describer, points) if nearest is None else _neighbors(queries, points, nearest)
    for line in lines:
        typer.echo(line)


def _with_vectors(queries: QuerySet) -> QuerySet:
    """Return the queries with the vectors that the ranker kin makes from their texts, unless they have vectors."""
    from kinrank.data.texts import TEXT
    from kinrank.data.vectors import VECTORS
    from kinrank.rankers import RANKERS
    from kinrank.rankers.local.texts import unfitted_encoder

    encoder = unfitted_encoder(RANKERS["kin"]())
    if encoder is None or VECTORS in queries.query_columns or TEXT not in queries.query_columns:
        return queries
    texts = queries.query_columns[TEXT].tolist()
    vectors = (encoder if encoder.is_fitted else encoder.fit(texts)).encode(texts)
    return queries.replace(query_columns={**queries.query_columns, VECTORS: vectors})


def _numbers(queries: QuerySet, describer: Describer, points: Float32) -> Iterator[str]:
    yield "\t".join(("qid", *describer.names))
    for qid, point in zip(queries.qid.tolist(), points.tolist(), strict=True):
        yield "\t".join((str(qid), *(f"{value:.6g}" for value in point)))


def _neighbors(queries: QuerySet, points: Float32, count: int) -> Iterator[str]:
    """Yield each query with its nearest other queries and their distances."""
    from kinrank.neighbors import make_index
    from kinrank.study.report.collect import query_names

    names = query_names(queries)
    index = make_index("auto", *points.shape).fit(points)
    distances, near = index.query(points, min(count + 1, len(queries)))
    for query, name in enumerate(names):
        others = [
            f"{names[other]} ({distance:.2f})"
            for other, distance in zip(near[query].tolist(), distances[query], strict=True)
            if other != query
        ]
        yield "\t".join((name, *others[:count]))
