"""``kinrank rank``: candidates scored by a model, as a TREC run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import files, messages

if TYPE_CHECKING:
    from kinrank.data.trec import Run

QUERIES_AT_ONCE = 256


def rank(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The folder that kinrank train wrote.")],
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Queries with document ids: {files.FORMS}.")],
    out: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Where to write the run, packed if .gz or .xz; stdout where not given."),
    ] = None,
    tag: Annotated[str, typer.Option(help="The name of the run.")] = "kinrank",
) -> None:
    """Rank the candidates of each query and write a TREC run."""
    import numpy as np

    from kinrank.data.trec import run_from_scores, write_run
    from kinrank.rankers import load

    with messages.working("reading"):
        ranker = load(model)
        # A feature that no line of a LETOR file names is 0, not unknown: the model says how many there are.
        queries = files.Source(data, len(ranker.feature_names_)).read()
    scores = np.empty(queries.n_rows)
    with messages.working("ranking", len(queries)) as advance:
        for first in range(0, len(queries), QUERIES_AT_ONCE):
            some = queries[first : first + QUERIES_AT_ONCE]
            scores[queries.offsets[first] :][: some.n_rows] = ranker.predict(some)
            advance(len(some))
    run = run_from_scores(queries, scores, tag)
    if out is None:
        _print(run)
    else:
        write_run(run, out)
        messages.say(f"{out}: {len(run):,} documents of {len(queries):,} queries")


def _print(run: Run) -> None:
    """The run on stdout: all of it, or nothing where it cannot be written."""
    from kinrank.data.trec import write_run

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "run"
        write_run(run, file)
        with file.open("rb") as stream:
            shutil.copyfileobj(stream, typer.get_binary_stream("stdout"))
