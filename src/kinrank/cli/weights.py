"""``kinrank weights``: the weights of each query, or the request that hands them to a search engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import files, messages
from kinrank.engines.targets import TARGETS
from kinrank.errors import DataError, FileFormatError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinrank.data.queryset import QuerySet
    from kinrank.engines.targets import Target
    from kinrank.rankers import Ranker

QUERIES_AT_ONCE = 256


def _target_names(incomplete: str) -> list[str]:
    return [name for name in TARGETS if name.startswith(incomplete)]


def weights(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder that kinrank train wrote.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries with candidates: {files.FORMS}.")],
    query: Annotated[str | None, typer.Option(metavar="ID", help="This query alone.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, a line for each query.")] = False,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", autocompletion=_target_names, help=f"Print requests: {', '.join(TARGETS)}."),
    ] = None,
    clauses: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="JSON: the clause of each feature; {{column}} is a query column, {{doc_id}} the candidates.",
        ),
    ] = None,
    inverted: Annotated[
        list[str] | None,
        typer.Option(metavar="FEATURE", help="Its clause scores a constant minus the feature; repeatable."),
    ] = None,
) -> None:
    """Show the weights of each query, or the request with them that a search engine takes."""
    from kinrank.rankers import load

    wanted = None if target is None else _made(target)
    given = None if clauses is None else _read_clauses(clauses)
    with messages.working("reading"):
        ranker = load(model)
        # A feature that no line of a LETOR file names is 0, not unknown: the model says how many there are.
        queries = files.Source(data, len(ranker.feature_names_)).read()
    if query is not None:
        queries = _only(queries, query, data)
    rows = _rows(ranker, queries)
    if wanted is None:
        _show(queries.feature_names, rows, as_json)
    else:
        _show_requests(wanted, rows, given, inverted or [], alone=query is not None)


def _made(spec: str) -> Target:
    target: Target = TARGETS.make(spec)
    return target


def _read_clauses(path: str) -> dict[str, Any]:
    try:
        clauses = json.loads(Path(path).read_text())
    except ValueError as error:
        raise FileFormatError(path, getattr(error, "lineno", 0), f"expected JSON, {error}") from None
    if not isinstance(clauses, dict):
        raise FileFormatError(path, 0, f"expected an object with the clause of each feature, got {clauses!r}")
    return clauses


def _only(queries: QuerySet, query: str, data: str) -> QuerySet:
    matches = [place for place, qid in enumerate(queries.qid.tolist()) if str(qid) == query]
    if not matches:
        some = ", ".join(map(str, queries.qid[:5].tolist()))
        raise DataError(f"{data}: no query {query!r} among {len(queries)}: {some}...")
    return queries[matches[0] : matches[0] + 1]


def _rows(ranker: Ranker, queries: QuerySet) -> Iterator[tuple[QuerySet, dict[str, float]]]:
    """Each query with its weights by name."""
    with messages.working("weighing", len(queries)) as advance:
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            some = queries[first : first + QUERIES_AT_ONCE]
            for one, row in zip(some, ranker.weights(some).tolist(), strict=True):
                yield one, dict(zip(some.feature_names, row, strict=True))
            advance(len(some))


def _show(feature_names: tuple[str, ...], rows: Iterator[tuple[QuerySet, dict[str, float]]], as_json: bool) -> None:
    table = Table(box=None, pad_edge=False)
    for heading in ("query", *feature_names):
        table.add_column(heading, justify="left" if heading == "query" else "right")
    for one, row in rows:
        qid = one.qid[0].item()
        if as_json:
            typer.echo(json.dumps({"qid": qid, "weights": row}))
        else:
            table.add_row(str(qid), *(f"{weight:.4g}" for weight in row.values()))
    if not as_json:
        messages.show(table)


def _show_requests(
    target: Target,
    rows: Iterator[tuple[QuerySet, dict[str, float]]],
    clauses: dict[str, Any] | None,
    inverted: list[str],
    *,
    alone: bool,
) -> None:
    if not target.per_query and not alone:
        raise ParameterError(f"{target.version} keeps one model for many queries: say whose weights with --query")
    refused: list[DataError] = []
    answered = 0
    for one, row in rows:
        try:
            request = _request(target, one, row, clauses, inverted)
        except DataError as error:
            if alone:
                raise
            refused.append(error)
            continue
        answered += 1
        qid = one.qid[0].item()
        typer.echo(json.dumps(request, indent=2) if alone else json.dumps({"qid": qid, "request": request}))
    if refused and not answered:
        raise refused[0]
    if refused:
        messages.warn(
            f"{len(refused):,} of {answered + len(refused):,} queries have no request, the first: {refused[0]}"
        )


def _request(
    target: Target, query: QuerySet, weights: dict[str, float], clauses: dict[str, Any] | None, inverted: list[str]
) -> dict[str, Any]:
    """The request of one query, its clauses filled from its columns."""
    from kinrank.engines.placeholders import fill_placeholders
    from kinrank.engines.targets import value_ranges

    ranges = value_ranges(query.feature_names, query.X)
    if clauses is None:
        return target.request(weights, ranges=ranges, inverted=inverted)
    known = {name: values[0] for name, values in query.query_columns.items()}
    filled = fill_placeholders(clauses, known if query.doc_id is None else {**known, "doc_id": query.doc_id})
    # A feature without a clause is not missed where its weight is 0.
    needed = {name: weight for name, weight in weights.items() if name in filled or weight != 0}
    return target.request(needed, filled, ranges=ranges, inverted=inverted)
