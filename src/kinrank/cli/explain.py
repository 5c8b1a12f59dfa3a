"""``kinrank explain``: show why a model ranks a query as it does, or print its weights for a search engine."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.inputs import load_model, read_queries, select_queries
from kinrank.cli.options import ChosenQueries, ModelFolder
from kinrank.data.source import FORMATS
from kinrank.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kinrank.data.queryset import QuerySet
    from kinrank.rankers import Ranker

    Row = tuple[QuerySet, dict[str, float], float | None, dict[str, float]]

QUERIES_AT_ONCE = 256


def print_weights(ranker: Ranker, data: str, query: list[str] | None, as_json: bool) -> None:
    """Print the weights of each query, with which a search engine ranks as the model does."""
    from kinrank.rankers.capabilities import has_weights, takes_evidence

    queries = select_queries(_read(data, ranker), query, data)
    if not has_weights(ranker):
        raise ParameterError(f"{type(ranker).__name__} has no linear weights: kinrank train --list shows which have")
    chosen = takes_evidence(ranker) and ranker.chosen_ is not None
    _print_weights(queries.feature_names, (_boosted_rows if chosen else _rows)(ranker, queries), as_json)


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


_PANEL = "Weights for a search engine"


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
) -> None:
    """Show which judged queries and features rank each query, or print its weights for a search engine."""
    from kinrank.rankers.capabilities import can_explain

    ranker = load_model(model)
    if weights or as_json:
        print_weights(ranker, data, query, as_json)
        return
    queries = read_queries(data, len(ranker.feature_names_), ranker)
    if not can_explain(ranker):
        raise ParameterError(f"{model}: {type(ranker).__name__} has no explanations; see kinrank train --list")
    for selected in select_queries(queries, query, data):
        console.print_result(str(ranker.explain(selected)[0]))
