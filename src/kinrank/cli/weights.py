"""``kinrank weights``: print the weights of each query, or a search engine request that applies them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.inputs import load_model, read_queries, select_queries
from kinrank.data.source import FORMATS
from kinrank.engines.targets import TARGETS
from kinrank.errors import DataError, FileFormatError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinrank.data.normalization import Normalization
    from kinrank.data.queryset import QuerySet
    from kinrank.engines.targets import Target
    from kinrank.rankers import Ranker
    from kinrank.rankers.capabilities import Weighted

    Row = tuple[QuerySet, dict[str, float], float | None]

QUERIES_AT_ONCE = 256


def _target_names(incomplete: str) -> list[str]:
    return [name for name in TARGETS if name.startswith(incomplete)]


def weights(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model folder written by kinrank train.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries with candidates: {FORMATS}.")],
    query: Annotated[
        list[str] | None,
        typer.Option(metavar="QID", help="Id of a query to print; repeatable.", show_default="all queries"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json/--no-json", help="Print JSON, one line per query.")] = False,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", autocompletion=_target_names, help=f"Print requests for an engine: {', '.join(TARGETS)}."
        ),
    ] = None,
    clauses: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="JSON file with the clause of each feature; {{column}} is replaced by a query column, {{doc_id}} by "
            "the candidates.",
        ),
    ] = None,
    inverted: Annotated[
        list[str] | None,
        typer.Option(metavar="FEATURE", help="Feature whose clause scores a constant minus the feature; repeatable."),
    ] = None,
) -> None:
    """Print the weights of each query, or a search engine request that applies them."""
    from kinrank.rankers.capabilities import has_weights

    wanted = None if target is None else _make_target(target)
    given = None if clauses is None else _read_clauses(clauses)
    ranker = load_model(model)
    queries = select_queries(_read(data, ranker), query, data)
    if not has_weights(ranker):
        raise ParameterError(f"{type(ranker).__name__} has no linear weights: kinrank train --list shows which have")
    rows = _rows(ranker, queries)
    if wanted is None:
        _print_weights(queries.feature_names, rows, as_json)
    else:
        make = _Requests(wanted, given, inverted or [], ranker.normalization)
        _print_requests(make, rows, single=bool(query) and len(queries) == 1)


def _make_target(spec: str) -> Target:
    target: Target = TARGETS.make(spec)
    return target


def _read_clauses(path: str) -> dict[str, Any]:
    try:
        clauses = json.loads(Path(path).read_text())
    except json.JSONDecodeError as error:
        raise FileFormatError(path, error.lineno, f"expected JSON, {error}") from None
    except ValueError as error:
        raise FileFormatError(path, 0, f"expected JSON, {error}") from None
    if not isinstance(clauses, dict):
        raise FileFormatError(path, 0, f"expected an object with the clause of each feature, got {clauses!r}")
    return clauses


def _read(path: str, ranker: Ranker) -> QuerySet:
    """Read queries; a table with texts and no features at all is a set of queries before any search."""
    import numpy as np

    from kinrank.data.texts import TEXT

    queries = read_queries(path, len(ranker.feature_names_))
    if queries.n_features or TEXT not in queries.query_columns:
        return queries
    unknown = np.full((queries.n_rows, len(ranker.feature_names_)), np.nan, dtype=np.float32)
    return queries.replace(X=unknown, feature_names=ranker.feature_names_)


def _rows(ranker: Weighted, queries: QuerySet) -> Iterator[Row]:
    """Yield each query with its weights by feature name, and their fidelity if the ranker is not linear."""
    with console.progress("computing weights", len(queries)) as advance:
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            some = queries[first : first + QUERIES_AT_ONCE]
            found = ranker.weights_with_fidelity(some)
            fidelity = [None] * len(some) if found.fidelity is None else found.fidelity.tolist()
            for one, row, tau in zip(some, found.weights.tolist(), fidelity, strict=True):
                yield one, dict(zip(some.feature_names, row, strict=True)), tau
            advance(len(some))


def _print_weights(feature_names: tuple[str, ...], rows: Iterator[Row], as_json: bool) -> None:
    if as_json:
        for one, row, fidelity in rows:
            how_faithful = {} if fidelity is None else {"fidelity": fidelity}
            typer.echo(json.dumps({"qid": one.qid[0].item(), **how_faithful, "weights": row}))
        return
    lines = list(rows)
    exact = all(fidelity is None for _, _, fidelity in lines)
    table = Table(box=None, pad_edge=False)
    table.add_column("query")
    for heading in (*feature_names, *(() if exact else ("fidelity",))):
        table.add_column(heading, justify="right")
    for one, row, fidelity in lines:
        cells = [f"{weight:.4g}" for weight in row.values()]
        table.add_row(str(one.qid[0].item()), *cells, *(() if exact else (f"{fidelity:.2f}",)))
    console.print_result(table)


@dataclass(frozen=True)
class _Requests:
    """Makes the request of a query."""

    target: Target
    clauses: dict[str, Any] | None
    inverted: list[str]
    normalization: Normalization | None

    def __call__(self, query: QuerySet, weights: dict[str, float]) -> dict[str, Any]:
        """Return the request of one query, with its columns filled into the clauses."""
        from kinrank.engines.placeholders import fill_placeholders
        from kinrank.engines.targets import value_ranges

        ranges = value_ranges(query.feature_names, query.X)
        settings: dict[str, Any] = {"inverted": self.inverted, "ranges": ranges, "normalization": self.normalization}
        if self.clauses is None:
            return self.target.request(weights, **settings)
        known = {name: values[0] for name, values in query.query_columns.items()}
        filled = fill_placeholders(self.clauses, known if query.doc_id is None else {**known, "doc_id": query.doc_id})
        # A feature with weight 0 needs no clause.
        needed = {name: weight for name, weight in weights.items() if name in filled or weight != 0}
        return self.target.request(needed, filled, **settings)


def _print_requests(make: _Requests, rows: Iterator[Row], *, single: bool) -> None:
    if not make.target.per_query and not single:
        version = make.target.version
        raise ParameterError(f"{version} stores one model for many queries: choose one query with --query QID")
    refused: list[DataError] = []
    answered = 0
    for one, row, _ in rows:
        try:
            request = make(one, row)
        except DataError as error:
            if single:
                raise
            refused.append(error)
            continue
        answered += 1
        qid = one.qid[0].item()
        typer.echo(json.dumps(request, indent=2) if single else json.dumps({"qid": qid, "request": request}))
    if refused and not answered:
        raise refused[0]
    if refused:
        console.warn(
            f"no request for {len(refused):,} of {answered + len(refused):,} queries; first reason: {refused[0]}"
        )
