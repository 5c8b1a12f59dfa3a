"""``kinrank explain``: show why a model ranks a query as it does, or print its weights for a search engine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.inputs import load_model, read_queries, select_queries
from kinrank.cli.options import ChosenQueries, ModelFolder
from kinrank.data.source import FORMATS
from kinrank.engines.targets import TARGETS
from kinrank.errors import DataError, FileFormatError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinrank.data.normalization import Normalization
    from kinrank.data.queryset import QuerySet
    from kinrank.engines.targets import Target
    from kinrank.rankers import Ranker

    Row = tuple[QuerySet, dict[str, float], float | None, dict[str, float]]

QUERIES_AT_ONCE = 256


def print_engine_weights(
    ranker: Ranker,
    data: str,
    query: list[str] | None,
    as_json: bool,
    target: str | None,
    clauses: str | None,
    inverted: list[str],
) -> None:
    """Print the weights of each query for a search engine, or the requests that apply them."""
    from kinrank.rankers.capabilities import has_weights, takes_evidence

    wanted: Target | None = None if target is None else TARGETS.make(target)
    given = None if clauses is None else _read_clauses(clauses)
    queries = select_queries(_read(data, ranker), query, data)
    if not has_weights(ranker):
        raise ParameterError(f"{type(ranker).__name__} has no linear weights: kinrank train --list shows which have")
    chosen = takes_evidence(ranker) and ranker.chosen_ is not None
    rows = _boosted_rows(ranker, queries) if chosen else _rows(ranker, queries)
    if wanted is None:
        _print_weights(queries.feature_names, rows, as_json)
    else:
        make = _Requests(wanted, given, inverted, ranker.normalization)
        _print_requests(make, rows, single=bool(query) and len(queries) == 1)


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

    queries = read_queries(path, len(ranker.feature_names_), ranker)
    if queries.n_features or TEXT not in queries.query_columns:
        return queries
    unknown = np.full((queries.n_rows, len(ranker.feature_names_)), np.nan, dtype=np.float32)
    return queries.replace(X=unknown, feature_names=ranker.feature_names_)


def _rows(ranker: Any, queries: QuerySet) -> Iterator[Row]:
    """Yield each query with its weights by feature name, and their fidelity if the ranker is not linear."""
    with console.progress("computing weights", len(queries)) as advance:
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            batch = queries[first : first + QUERIES_AT_ONCE]
            linear = ranker.weights_with_fidelity(batch)
            fidelity = [None] * len(batch) if linear.fidelity is None else linear.fidelity.tolist()
            for query, row, tau in zip(batch, linear.weights.tolist(), fidelity, strict=True):
                yield query, dict(zip(batch.feature_names, row, strict=True)), tau, {}
            advance(len(batch))


def _boosted_rows(ranker: Any, queries: QuerySet) -> Iterator[Row]:
    """Yield each query with its weights, and with what people chose as boosts of documents."""
    with console.progress("computing weights", len(queries)) as advance:
        for query in queries:
            found = ranker.boosted_weights(query)
            ids = [] if query.doc_id is None else query.doc_id.tolist()
            boosts = {str(doc_id): boost for doc_id, boost in zip(ids, found.boosts.tolist(), strict=False) if boost}
            yield query, dict(zip(query.feature_names, found.weights.tolist(), strict=True)), found.fidelity, boosts
            advance(1)


def _print_weights(feature_names: tuple[str, ...], rows: Iterator[Row], as_json: bool) -> None:
    if as_json:
        for query, row, fidelity, boosts in rows:
            how_faithful = {} if fidelity is None else {"fidelity": fidelity}
            chosen = {"boosts": boosts} if boosts else {}
            typer.echo(json.dumps({"qid": query.qid[0].item(), **how_faithful, "weights": row, **chosen}))
        return
    lines = list(rows)
    exact = all(fidelity is None for _, _, fidelity, _ in lines)
    table = Table(box=None, pad_edge=False)
    table.add_column("query")
    for heading in (*feature_names, *(() if exact else ("fidelity",))):
        table.add_column(heading, justify="right")
    for query, row, fidelity, _ in lines:
        cells = [f"{weight:.4g}" for weight in row.values()]
        table.add_row(str(query.qid[0].item()), *cells, *(() if exact else (f"{fidelity:.2f}",)))
    console.print_result(table)


@dataclass(frozen=True)
class _Requests:
    """Makes the request of a query."""

    target: Target
    clauses: dict[str, Any] | None
    inverted: list[str]
    normalization: Normalization | None

    def __call__(self, query: QuerySet, weights: dict[str, float], boosts: dict[str, float]) -> dict[str, Any]:
        """Return the request of one query, with its columns filled into the clauses."""
        from kinrank.engines.features import fill_placeholders
        from kinrank.engines.targets import value_ranges

        ranges = value_ranges(query.feature_names, query.X)
        settings: dict[str, Any] = {"inverted": self.inverted, "ranges": ranges, "normalization": self.normalization}
        settings["boosts"] = boosts
        if self.clauses is None:
            return self.target.request(weights, **settings)
        columns = {name: values[0] for name, values in query.query_columns.items()}
        filled = fill_placeholders(
            self.clauses, columns if query.doc_id is None else {**columns, "doc_id": query.doc_id}
        )
        # A feature with weight 0 needs no clause.
        needed = {name: weight for name, weight in weights.items() if name in filled or weight != 0}
        return self.target.request(needed, filled, **settings)


def _print_requests(make: _Requests, rows: Iterator[Row], *, single: bool) -> None:
    refused: list[DataError] = []
    answered = 0
    for query, row, _, boosts in rows:
        try:
            request = make(query, row, boosts)
        except DataError as error:
            if single:
                raise
            refused.append(error)
            continue
        answered += 1
        qid = query.qid[0].item()
        typer.echo(json.dumps(request, indent=2) if single else json.dumps({"qid": qid, "request": request}))
    if refused and not answered:
        raise refused[0]
    if refused:
        console.warn(
            f"no request for {len(refused):,} of {answered + len(refused):,} queries; first reason: {refused[0]}"
        )


_PANEL = "Weights for a search engine"


def _target_names(incomplete: str) -> list[str]:
    return [name for name in TARGETS if name.startswith(incomplete)]


def explain(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries with candidates: {FORMATS}.")],
    query: ChosenQueries = None,
    weights: Annotated[
        bool,
        typer.Option(
            "--weights",
            rich_help_panel=_PANEL,
            help="Print linear weights that rank the candidates as the model does, or nearly so.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", rich_help_panel=_PANEL, help="Print the weights as JSON, one line per query.")
    ] = False,
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            rich_help_panel=_PANEL,
            autocompletion=_target_names,
            help=f"Print requests that apply the weights in an engine: {', '.join(TARGETS)}.",
        ),
    ] = None,
    clauses: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            rich_help_panel=_PANEL,
            help="JSON file with the clause of each feature; {{column}} is replaced by a query column, {{doc_id}} by "
            "the candidates.",
        ),
    ] = None,
    inverted: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FEATURE",
            rich_help_panel=_PANEL,
            help="Feature whose clause scores a constant minus the feature; repeatable.",
        ),
    ] = None,
) -> None:
    """Show which judged queries and features rank each query, or print its weights for a search engine."""
    from kinrank.rankers.capabilities import can_explain

    ranker = load_model(model)
    if weights or as_json or target is not None:
        print_engine_weights(ranker, data, query, as_json, target, clauses, inverted or [])
        return
    queries = read_queries(data, len(ranker.feature_names_), ranker)
    if not can_explain(ranker):
        raise ParameterError(f"{model}: {type(ranker).__name__} has no explanations; see kinrank train --list")
    for selected in select_queries(queries, query, data):
        console.print_result(str(ranker.explain(selected)[0]))
