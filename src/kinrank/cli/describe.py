"""``kinrank describe``: queries as points, and which of them are kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import files, messages
from kinrank.registry.notation import parse_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinrank.arrays import Float32
    from kinrank.data.queryset import QuerySet
    from kinrank.describe import Describer


def describe(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries with candidates: {files.FORMS}.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of Describer, such as blocks=; repeatable."),
    ] = None,
    nearest: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Show the N queries nearest to each, in place of its numbers."),
    ] = None,
) -> None:
    """Show the numbers that stand for each query, or the queries it is nearest to, a line each."""
    from kinrank.describe import Describer

    describer = Describer(**parse_settings(Describer, settings or []))
    with messages.working("describing"):
        queries = files.Source(data).read()
        points = describer.fit(queries).transform(queries)
    lines = _numbers(queries, describer, points) if nearest is None else _kin(queries, points, nearest)
    for line in lines:
        typer.echo(line)


def _numbers(queries: QuerySet, describer: Describer, points: Float32) -> Iterator[str]:
    yield "\t".join(("qid", *describer.names))
    for qid, point in zip(queries.qid.tolist(), points.tolist(), strict=True):
        yield "\t".join((str(qid), *(f"{value:.6g}" for value in point)))


def _kin(queries: QuerySet, points: Float32, count: int) -> Iterator[str]:
    """Each query with the others nearest to it and how far they are; by name where they have one."""
    from kinrank.neighbors import make_index
    from kinrank.study.report.names import query_names

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
