"""Measure the tables and figures of the papers again and compare them with what the papers report.

Run ``python -m reproduction --list``, ``python -m reproduction geng:fig7`` or ``python -m reproduction all``.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.console import handle_errors
from reproduction import PAPERS

if TYPE_CHECKING:
    from reproduction.claims import Verdict
    from reproduction.experiment import Experiment
    from reproduction.results import Results

CHOICES = (*PAPERS, "all")
NOT_AS_EXPECTED = 3
"""Exit code if a claim is not as expected."""


def _choices(incomplete: str) -> list[str]:
    return [name for name in CHOICES if name.startswith(incomplete)]


def reproduce(
    paper: Annotated[
        str,
        typer.Argument(
            metavar="PAPER",
            autocompletion=_choices,
            help=f"Paper to reproduce: {', '.join(CHOICES[:-1])}, or all; one of its tables or figures, as in "
            "geng:fig7; or the name of one experiment.",
        ),
    ] = "all",
    list_: Annotated[
        bool,
        typer.Option("--list", help="List the tables and figures, their commands, minutes and verdicts, and exit."),
    ] = False,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="Folder of judged collections, with letor/ and text/.", show_default="KINRANK_DATA"
        ),
    ] = None,
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Output folder for finished work, figures and page.")
    ] = "reproduction/results",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of processes.", show_default="number of cores")
    ] = None,
) -> None:
    """Measure the tables and figures of the papers again, and compare them with the papers' claims.

    Finished work is stored: run the same command again to resume. The exit code is 3 if a claim is not as expected.
    """
    from kinrank.parallel import usable_cores
    from reproduction.cache import ResultCache
    from reproduction.data_folder import DataFolder
    from reproduction.items import collections_of, experiments_at
    from reproduction.output import check_extras, write
    from reproduction.results import Results
    from reproduction.run import measure, require_files

    if list_:
        _list()
        return
    experiments = experiments_at(paper)
    cache = ResultCache(Path(out) / "tasks", DataFolder.locate(data, collections_of(experiments)))
    require_files(experiments, cache.data)
    check_extras()
    left = Counter({experiment.name: len(experiment.tasks) for experiment in experiments})
    total = sum(_seconds(experiment, task) for experiment in experiments for task in experiment.tasks)
    run = {"processes": jobs or usable_cores(), "resumed": int(cache.path.exists())}
    started = time.perf_counter()
    with console.progress(f"reproducing {paper}", total) as advance:

        def on_done(experiment: Experiment, task: str) -> None:
            advance(_seconds(experiment, task))
            left[experiment.name] -= 1
            if not left[experiment.name]:
                console.info(f"{experiment.name}: measured")

        measured = measure(experiments, cache, jobs=run["processes"], on_done=on_done)
    results = Results.of(measured, {"minutes": round((time.perf_counter() - started) / 60, 1), **run})
    for file in write(results, Path(out)):
        console.info(f"{file}: written")
    _show(results)


def _list() -> None:
    """Print what can be run, with the verdicts of the last run that was stored."""
    from reproduction.items import rows
    from reproduction.results import STORED, Results

    table = Table(box=None, pad_edge=False)
    for heading in ("paper", "table or figure", "python -m reproduction", "data", "minutes", "verdict"):
        table.add_column(heading, justify="right" if heading == "minutes" else "left")
    for row in rows(Results.read(STORED)):
        table.add_row(*row)
    console.print_result(table)


def _seconds(experiment: Experiment, task: str) -> int:
    return round(60 * experiment.tasks[task].minutes) + 1


def _show(results: Results) -> None:
    """Print every claim and its verdict, and exit with 3 if one is not as expected."""
    surprises: list[Verdict] = []
    for paper, verdicts in results.verdicts().items():
        console.print_result(PAPERS[paper])
        console.print_result(_table(verdicts))
        holding = sum(verdict.holds for verdict in verdicts)
        console.print_result(f"{holding} of {len(verdicts)} claims reproduced\n")
        surprises += [verdict for verdict in verdicts if not verdict.as_expected]
    console.print_result(_theses(results))
    cpu = sum(seconds["cpu"] for seconds in results.seconds.values())
    console.info(f"{cpu / 60:.1f} minutes of CPU time, including the runs that this one resumed")
    if surprises:
        for verdict in surprises:
            console.error(f"{verdict.claim.source}: {verdict.claim.statement}: {verdict.value:g}, {verdict}")
        raise typer.Exit(NOT_AS_EXPECTED)


def _theses(results: Results) -> Table:
    from reproduction.claims import DATA, expectations
    from reproduction.page import thesis_verdict

    table = Table(box=None, pad_edge=False)
    for heading in ("paper", "thesis", *(f"on {data} data" for data in DATA)):
        table.add_column(heading)
    for paper, verdicts in results.verdicts().items():
        if paper not in results.papers:
            continue
        words = (thesis_verdict(paper, verdicts, data).replace("*", "") for data in DATA)
        table.add_row(PAPERS[paper].partition(",")[0], expectations(paper).thesis, *words)
    return table


def _table(verdicts: list[Verdict]) -> Table:
    from reproduction.page import condition, format_value

    table = Table(box=None, pad_edge=False)
    for heading in ("in the paper", "claim", "holds if", "measured", "verdict"):
        table.add_column(heading, justify="right" if heading == "measured" else "left")
    for verdict in verdicts:
        claim = verdict.claim
        table.add_row(claim.source, claim.statement, condition(claim), format_value(verdict.value), str(verdict))
    return table


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(handle_errors(reproduce))

if __name__ == "__main__":
    app(prog_name="python -m reproduction")
