"""The ``kinrank`` program: its commands and global options."""

from __future__ import annotations

from typing import Annotated

import typer

import kinrank
from kinrank.cli.audit import audit
from kinrank.cli.clicks import clicks
from kinrank.cli.columns import with_columns, with_threads
from kinrank.cli.compare import compare
from kinrank.cli.convert import convert
from kinrank.cli.demo import demo
from kinrank.cli.describe import describe
from kinrank.cli.doctor import doctor
from kinrank.cli.examples import EXAMPLES
from kinrank.cli.explain import explain
from kinrank.cli.failures import debugging, handle_errors
from kinrank.cli.forget import forget
from kinrank.cli.headroom import headroom
from kinrank.cli.judgments import judgments
from kinrank.cli.key import key
from kinrank.cli.log import log
from kinrank.cli.models import models
from kinrank.cli.rank import rank
from kinrank.cli.report import report
from kinrank.cli.rules import rules
from kinrank.cli.serve import serve
from kinrank.cli.split import split
from kinrank.cli.train import train
from kinrank.cli.tune import tune

app = typer.Typer(
    name="kinrank",
    help="Rank each query with a model learned from the judged queries most similar to it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
_PANELS = {
    "Prepare data": (clicks, with_columns(log), with_columns(convert), with_columns(split), with_columns(describe)),
    "Study what pays": (
        with_columns(with_threads(headroom)),
        with_columns(with_threads(tune)),
        with_columns(with_threads(compare)),
        with_columns(with_threads(report)),
    ),
    "Use a model": (
        with_columns(with_threads(train)),
        with_columns(rank),
        with_columns(explain),
        serve,
        models,
        judgments,
        rules,
        forget,
        audit,
        key,
    ),
    "Help": (demo, with_columns(doctor)),
}
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _example = EXAMPLES[_command.__name__]
        app.command(rich_help_panel=_panel, epilog=f"Example: {_example}")(handle_errors(_command))


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
