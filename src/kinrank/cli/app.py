"""The ``kinrank`` program: its commands, an example of each, and global options."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import kinrank
from kinrank.cli import admin, data, memory
from kinrank.cli.clicks import clicks
from kinrank.cli.compare import compare
from kinrank.cli.console import debugging, handle_errors
from kinrank.cli.demo import demo
from kinrank.cli.doctor import doctor
from kinrank.cli.explain import explain
from kinrank.cli.headroom import headroom
from kinrank.cli.log import log
from kinrank.cli.options import with_columns
from kinrank.cli.rank import rank
from kinrank.cli.report import report
from kinrank.cli.serve import serve
from kinrank.cli.train import train

EXAMPLES = {
    "demo": "kinrank demo",
    "doctor": "kinrank doctor judged.csv",
    "clicks": "kinrank clicks events.parquet --out judgments.csv",
    "log": "kinrank log --engine elasticsearch+http://localhost:9200/movies --features features.toml "
    "--judgments judgments.csv --out logged.parquet",
    "headroom": "kinrank headroom judged.csv --group customer",
    "compare": "kinrank compare test.parquet lightgbm kin --train train.parquet",
    "report": "kinrank report test.parquet lightgbm kin --train train.parquet --out report.html",
    "train": "kinrank train train.parquet --model model --validate test.parquet",
    "rank": "kinrank rank model candidates.parquet --out ranked.run",
    "explain": "kinrank explain model candidates.parquet --query 17",
    "serve": "kinrank serve model",
    "memory stats": "kinrank memory stats memory.db",
    "memory list": "kinrank memory list memory.db --containing password",
    "memory show": "kinrank memory show memory.db 'how do I reset my password?'",
    "memory why": "kinrank memory why memory.db 'forgot my password' --document account",
    "memory replay": "kinrank memory replay thumbs.csv",
    "memory import": "kinrank memory import memory.db thumbs.csv",
    "memory export": "kinrank memory export memory.db votes.parquet",
    "memory forget": "kinrank memory forget memory.db --user u-81",
    "data convert": "kinrank data convert train.csv train.parquet",
    "data split": "kinrank data split judged.csv train.parquet test.parquet --group customer",
    "admin key": "kinrank admin key keys.txt shop",
    "admin models": "kinrank admin models s3://bucket/models --publish model",
    "admin judgments": "kinrank admin judgments sqlite:///judgments.db --export live.parquet",
    "admin forget": "kinrank admin forget postgresql://kinrank@db/kinrank --client c-81",
    "admin index": "kinrank admin index judgments.parquet elasticsearch+http://localhost:9200/movies",
}
"""The example of each command, at the end of its help."""

_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Start": (demo, with_columns(doctor)),
    "Prepare data": (clicks, with_columns(log)),
    "Study what pays": (
        with_columns(headroom),
        with_columns(compare),
        with_columns(report),
    ),
    "Use a model": (with_columns(train), with_columns(rank), with_columns(explain), serve),
}
_GROUPS: dict[str, tuple[str, tuple[Callable[..., None], ...]]] = {
    "data": (
        "Convert and split queries.",
        (with_columns(data.convert), with_columns(data.split)),
    ),
    "memory": (
        "Look into a memory, fill it from other systems, write it down, and forget.",
        (
            *(memory.stats, memory.list_, memory.show, memory.why),
            *(memory.import_, memory.export, memory.replay, memory.forget),
        ),
    ),
    "admin": (
        "Manage a service: keys, models, judgments, texts in the index, and clients to forget.",
        (admin.key, admin.models, admin.judgments, admin.index, admin.forget),
    ),
}
app = typer.Typer(
    name="kinrank",
    help="New here? kinrank demo, then kinrank doctor FILE.\n\nRank each search by what similar searches taught.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for _panel, _commands in _PANELS.items():
    for _command in _commands:
        _example = EXAMPLES[_command.__name__]
        app.command(rich_help_panel=_panel, epilog=f"Example: {_example}")(handle_errors(_command))
for _name, (_help, _commands) in _GROUPS.items():
    _group = typer.Typer(no_args_is_help=True)
    for _command in _commands:
        _verb = _command.__name__.rstrip("_")
        _group.command(_verb, epilog=f"Example: {EXAMPLES[f'{_name} {_verb}']}")(handle_errors(_command))
    if _name == "memory":
        _group.callback()(memory.options)
    app.add_typer(_group, name=_name, help=_help, rich_help_panel="Prepare data" if _name == "data" else "Use a model")


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
