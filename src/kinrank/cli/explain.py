"""``kinrank explain``: show why a model ranks a query as it does."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.inputs import load_model, read_queries, select_queries
from kinrank.data.source import FORMATS


def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model folder written by kinrank train.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries: {FORMATS}.")],
    query: Annotated[
        list[str] | None,
        typer.Option(metavar="QID", help="Id of a query to explain; repeatable.", show_default="all queries"),
    ] = None,
) -> None:
    """Show which judged queries and which weights rank each query."""
    from kinrank.errors import ParameterError
    from kinrank.rankers.capabilities import can_explain

    ranker = load_model(model)
    queries = read_queries(data, len(ranker.feature_names_))
    if not can_explain(ranker):
        raise ParameterError(f"{model}: {type(ranker).__name__} has no explanations; see kinrank train --list")
    for each in select_queries(queries, query, data):
        console.print_result(str(ranker.explain(each)[0]))
