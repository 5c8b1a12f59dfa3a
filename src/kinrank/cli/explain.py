"""``kinrank explain``: show why a model ranks a query as it does, or print its weights for a search engine."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.engine_weights import print_engine_weights
from kinrank.cli.inputs import load_model, read_queries, select_queries
from kinrank.cli.options import ModelFolder, QueryIds
from kinrank.data.source import FORMATS
from kinrank.engines.targets import TARGETS
from kinrank.errors import ParameterError

_PANEL = "Weights for a search engine"


def _target_names(incomplete: str) -> list[str]:
    return [name for name in TARGETS if name.startswith(incomplete)]


def explain(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries with candidates: {FORMATS}.")],
    query: QueryIds = None,
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
