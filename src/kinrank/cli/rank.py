"""``kinrank rank``: rank candidates with a model and write a TREC run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import console
from kinrank.cli.inputs import load_model, read_queries
from kinrank.cli.options import ModelFolder
from kinrank.data.source import FORMATS

if TYPE_CHECKING:
    from kinrank.data.trec import Run

QUERIES_AT_ONCE = 256


def rank(
    model: ModelFolder,
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries with document ids: {FORMATS}.")],
    out: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Output file, compressed if .gz or .xz.", show_default="stdout"),
    ] = None,
) -> None:
    """Rank the candidates of each query and write a TREC run, which is named like the model."""
    import numpy as np

    from kinrank.data.trec import run_from_scores, write_run

    ranker = load_model(model)
    queries = read_queries(data, len(ranker.feature_names_), ranker)
    scores = np.empty(queries.n_rows)
    with console.progress("ranking", len(queries)) as advance:
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            batch = queries[first : first + QUERIES_AT_ONCE]
            scores[queries.offsets[first] :][: batch.n_rows] = ranker.predict(batch)
            advance(len(batch))
    run = run_from_scores(queries, scores, "-".join(Path(model).name.split()))
    if out is None:
        _print(run)
    else:
        write_run(run, out)
        console.info(f"{out}: {len(run):,} documents of {len(queries):,} queries")


def _print(run: Run) -> None:
    """Print the run on stdout: all of it, or nothing if it cannot be written."""
    from kinrank.data.trec import write_run

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run"
        write_run(run, file)
        with file.open("rb") as stream:
            shutil.copyfileobj(stream, typer.get_binary_stream("stdout"))
