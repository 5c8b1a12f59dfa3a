"""Measure the tables and figures of the papers again and compare them with what the papers report.

Run ``python -m reproduction all``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kinrank.cli import messages
from kinrank.cli.failures import reported
from reproduction import PAPERS

if TYPE_CHECKING:
    from reproduction.claims import Verdict
    from reproduction.part import Part
    from reproduction.results import Results

CHOICES = (*PAPERS, "all")
NOT_AS_EXPECTED = 3
"""Exit code if a figure is not what was expected."""


def _choices(incomplete: str) -> list[str]:
    return [name for name in CHOICES if name.startswith(incomplete)]


def reproduce(
    paper: Annotated[
        str, typer.Argument(metavar="PAPER", autocompletion=_choices, help=f"{', '.join(CHOICES[:-1])}, or all.")
    ] = "all",
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER", help="The judged collections: letor/ and text/.", show_default="what KINRANK_DATA says"
        ),
    ] = None,
    out: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for finished work and for the page.")
    ] = "reproduction/results",
    jobs: Annotated[
        int | None, typer.Option(min=1, help="How many processes.", show_default="as many as there are cores")
    ] = None,
) -> None:
    """Measure the tables and figures of the papers again; exit code 3 where one is not as expected.

    Every finished piece of work is kept: the same command goes on where it was stopped.
    """
    from reproduction.catalog import parts_of
    from reproduction.data_folder import DataFolder
    from reproduction.keep import Keeper
    from reproduction.output import check_extras, write
    from reproduction.results import Results
    from reproduction.run import measure, require_files, usable_cores

    parts = parts_of(paper)
    keeper = Keeper(Path(out) / "pieces", DataFolder.found(data))
    require_files(parts, keeper.data)
    check_extras()
    left = Counter({part.name: len(part.pieces) for part in parts})
    total = sum(_seconds(part, piece) for part in parts for piece in part.pieces)
    with messages.working(f"reproducing {paper}", total) as advance:

        def done(part: Part, piece: str) -> None:
            advance(_seconds(part, piece))
            left[part.name] -= 1
            if not left[part.name]:
                messages.say(f"{part.name}: measured")

        results = Results.of(measure(parts, keeper, jobs=jobs or usable_cores(), done=done))
    for file in write(results, Path(out)):
        messages.say(f"{file}: written")
    _show(results)


def _seconds(part: Part, piece: str) -> int:
    return round(60 * part.pieces[piece].minutes) + 1


def _show(results: Results) -> None:
    """Every claim and its verdict on stdout, and the exit code."""
    surprises: list[Verdict] = []
    for paper, verdicts in results.verdicts().items():
        messages.show(PAPERS[paper])
        messages.show(_table(verdicts))
        holding = sum(verdict.holds for verdict in verdicts)
        messages.show(f"{holding} of {len(verdicts)} claims reproduced\n")
        surprises += [verdict for verdict in verdicts if not verdict.as_expected]
    cpu = sum(seconds["cpu"] for seconds in results.seconds.values())
    messages.say(f"{cpu / 60:.1f} minutes of CPU time, in this run and those it went on from")
    if surprises:
        for verdict in surprises:
            messages.fail(f"{verdict.claim.where}: {verdict.claim.says}: {verdict.value:g}, {verdict}")
        raise typer.Exit(NOT_AS_EXPECTED)


def _table(verdicts: list[Verdict]) -> Table:
    from reproduction.page import condition, shown

    table = Table(box=None, pad_edge=False)
    for heading in ("where", "the paper says", "holds", "here", "verdict"):
        table.add_column(heading, justify="right" if heading == "here" else "left")
    for verdict in verdicts:
        claim = verdict.claim
        table.add_row(claim.where, claim.says, condition(claim), shown(verdict.value), str(verdict))
    return table


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command()(reported(reproduce))

if __name__ == "__main__":
    app(prog_name="python -m reproduction")
