"""The ``kinrank`` program: its commands and global options."""

from __future__ import annotations

from typing import Annotated

import typer

import kinrank
from kinrank.cli.clicks import clicks
from kinrank.cli.compare import compare
from kinrank.cli.convert import convert
from kinrank.cli.describe import describe
from kinrank.cli.evaluate import evaluate
from kinrank.cli.explain import explain
from kinrank.cli.failures import debugging, handle_errors
from kinrank.cli.headroom import headroom
from kinrank.cli.hybrid import hybrid
from kinrank.cli.interleave import interleave
from kinrank.cli.key import key
from kinrank.cli.log import log
from kinrank.cli.rank import rank
from kinrank.cli.report import report
from kinrank.cli.serve import serve
from kinrank.cli.threads import with_threads
from kinrank.cli.train import train
from kinrank.cli.tune import tune
from kinrank.cli.weights import weights

app = typer.Typer(
    name="kinrank",
    help="Rank each query with a model learned from the judged queries most similar to it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_PREPARE = (clicks, log, convert, describe)
_STUDY = (
    with_threads(headroom),
    with_threads(hybrid),
    with_threads(tune),
    evaluate,
    with_threads(compare),
    with_threads(report),
)
_USE = (with_threads(train), rank, explain, weights, serve, key, interleave)
for _command in (*_PREPARE, *_STUDY, *_USE):
    app.command()(handle_errors(_command))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kinrank {kinrank.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[  # noqa: ARG001 - its callback does the work
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Handle the global options."""
    debugging.set(debug)


def main() -> None:
    """Run the program and exit."""
    app()
