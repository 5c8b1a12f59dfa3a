"""``kinrank evaluate``: runs measured on judged queries and compared with a baseline."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kinrank.cli import files, messages

if TYPE_CHECKING:
    from kinrank.cli.scoreboard import Comparison, MeasuredRun
    from kinrank.measure import Measure

    Comparisons = dict[tuple[str, Measure], Comparison]

DEFAULT_MEASURE = "NDCG@10"


def evaluate(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged queries with document ids: {files.FORMS}.")],
    runs: Annotated[list[str], typer.Argument(metavar="RUN", help="TREC runs, plain or packed as .gz or .xz.")],
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            metavar="MEASURE",
            help="NDCG@10, 'NDCG(gain=linear)@5', AP...; repeatable.",
            show_default=DEFAULT_MEASURE,
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="The run that the others are compared with.", show_default="the first"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Measure runs on judged queries, with paired t-tests against a baseline, corrected by Holm for their number."""
    from kinrank.cli.scoreboard import compare_runs, measure_run
    from kinrank.measure import parse_measure

    wanted = list(dict.fromkeys(parse_measure(text) for text in measures or [DEFAULT_MEASURE]))
    paths = list(dict.fromkeys([baseline or runs[0], *runs]))
    with messages.working("measuring", len(paths)) as advance:
        queries = files.Source(data).read()
        measured = []
        for path in paths:
            measured.append(measure_run(path, queries, wanted))
            advance(1)
    comparisons = compare_runs(measured, wanted)
    for run in measured:
        _tell_gaps(run, queries.n_rows)
    if as_json:
        typer.echo(json.dumps(_record(measured, wanted, comparisons, queries.n_rows), indent=2, allow_nan=False))
        return
    for measure in wanted:
        messages.show(f"{measure!r}, {len(measured[0].evaluation.qid):,} queries")
        messages.show(_table(measured, measure, comparisons))
        messages.show("")
    if comparisons:
        messages.show(
            f"p: paired t against {measured[0].path}, corrected by Holm for the number of tests ({len(comparisons)})"
        )


def _tell_gaps(run: MeasuredRun, n_documents: int) -> None:
    if run.absent_documents:
        whole = f", among them all of {run.absent_queries:,} queries" if run.absent_queries else ""
        messages.warn(
            f"{run.path}: {run.absent_documents:,} of the {n_documents:,} documents of the data are not in the run"
            f"{whole}; they are ranked last"
        )
    if run.unknown_documents:
        messages.warn(f"{run.path}: {run.unknown_documents:,} documents are not in the data; they are left out")


def _table(runs: list[MeasuredRun], measure: Measure, comparisons: Comparisons) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("run")
    table.add_column("mean", justify="right")
    if comparisons:
        for heading in ("difference", "95% interval", "p", "wins", "ties", "losses"):
            table.add_column(heading, justify="right")
    for run in runs:
        row = [run.path, f"{run.evaluation[measure]:.4f}"]
        comparison = comparisons.get((run.path, measure))
        if comparison is not None:
            paired = comparison.paired
            low, high = paired.interval
            row += [f"{paired.mean_difference:+.4f}", f"{low:+.4f} to {high:+.4f}", f"{comparison.p_holm:.2g}"]
            row += [f"{count:,}" for count in (paired.wins, paired.ties, paired.losses)]
        table.add_row(*row)
    return table


def _record(
    runs: list[MeasuredRun], measures: list[Measure], comparisons: Comparisons, n_documents: int
) -> dict[str, Any]:
    """Everything the table says, and the uncorrected p-values, for machines."""
    return {
        "queries": len(runs[0].evaluation.qid),
        "documents": n_documents,
        "baseline": runs[0].path,
        "comparisons": len(comparisons),
        "runs": [
            {
                "run": run.path,
                "absent_documents": run.absent_documents,
                "absent_queries": run.absent_queries,
                "unknown_documents": run.unknown_documents,
                "measures": [
                    {
                        "measure": repr(measure),
                        "mean": _number(run.evaluation[measure]),
                        "against_baseline": _compared(comparisons.get((run.path, measure))),
                    }
                    for measure in measures
                ],
            }
            for run in runs
        ],
    }


def _compared(comparison: Comparison | None) -> dict[str, Any] | None:
    if comparison is None:
        return None
    paired = comparison.paired
    return {
        "difference": paired.mean_difference,
        "interval": list(paired.interval),
        "confidence": paired.confidence,
        "test": paired.test,
        "p": paired.p,
        "p_holm": comparison.p_holm,
        "queries": paired.n,
        "wins": paired.wins,
        "ties": paired.ties,
        "losses": paired.losses,
    }


def _number(value: float) -> float | None:
    """JSON has no NaN: a measure that leaves every query out has no mean."""
    return None if math.isnan(value) else value
