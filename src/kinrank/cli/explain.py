"""``kinrank explain``: why a model ranks a query as it does."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.cli import files, messages


def explain(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder that kinrank train wrote.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries: {files.FORMS}.")],
    query: Annotated[
        list[str] | None,
        typer.Option(metavar="QID", help="Explain this query; repeatable.", show_default="all queries"),
    ] = None,
) -> None:
    """Say from which judged queries each query is ranked, and by which weights."""
    import numpy as np

    from kinrank.errors import DataError, ParameterError
    from kinrank.rankers import load
    from kinrank.rankers.capabilities import can_explain

    with messages.working("reading"):
        ranker = load(model)
        queries = files.Source(data, len(ranker.feature_names_)).read()
    if not can_explain(ranker):
        raise ParameterError(f"{model}: {type(ranker).__name__} has no explanations; see kinrank train --list")
    if query:
        known = queries.qid.astype(np.str_)
        absent = [qid for qid in query if qid not in known]
        if absent:
            raise DataError(f"{data}: has no query {absent[0]!r}; its queries are like {known[0].item()!r}")
        queries = queries[np.flatnonzero(np.isin(known, query))]
    for each in queries:
        messages.show(str(ranker.explain(each)[0]))
