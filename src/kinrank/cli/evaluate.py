"""``kinrank evaluate``: runs measured on judged queries and compared with a baseline."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinrank.cli import files, messages
from kinrank.cli.tables import gaps, means_table

if TYPE_CHECKING:
    from kinrank.measure import Measure
    from kinrank.study.comparison import Comparison

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
    from kinrank.measure import parse_measure
    from kinrank.study.comparison import compare
    from kinrank.study.entrants import run_entrant

    wanted = list(dict.fromkeys(parse_measure(text) for text in measures or [DEFAULT_MEASURE]))
    paths = list(dict.fromkeys([baseline or runs[0], *runs]))
    with messages.working("measuring", len(paths)) as advance:
        queries = files.Source(data).read()
        measured = []
        for path in paths:
            measured.append(run_entrant(path, queries, wanted))
            advance(1)
    comparison = compare(queries, measured)
    for run in measured:
        if run.coverage is not None:
            for gap in gaps(run.name, run.coverage, queries.n_rows):
                messages.warn(gap)
    if as_json:
        typer.echo(json.dumps(_record(comparison, wanted), indent=2, allow_nan=False))
        return
    for measure in wanted:
        messages.show(f"{measure!r}, {len(queries):,} queries")
        messages.show(means_table(comparison, measure, "run"))
        messages.show("")
    if comparison.differences:
        messages.show(
            f"p: paired t against {comparison.baseline.name}, corrected by Holm for the number of tests "
            f"({len(comparison.differences)})"
        )


def _record(comparison: Comparison, measures: list[Measure]) -> dict[str, Any]:
    """Everything the table says, and the uncorrected p-values, for machines."""
    from kinrank.study.records import number, paired_record

    tested = {(each.name, each.measure): paired_record(each) for each in comparison.differences}
    return {
        "queries": len(comparison.queries),
        "documents": comparison.queries.n_rows,
        "baseline": comparison.baseline.name,
        "comparisons": len(tested),
        "runs": [
            {
                "run": run.name,
                **({} if run.coverage is None else asdict(run.coverage)),
                "measures": [
                    {
                        "measure": repr(measure),
                        "mean": number(run.evaluation[measure]),
                        "against_baseline": tested.get((run.name, measure)),
                    }
                    for measure in measures
                ],
            }
            for run in comparison.entrants
        ],
    }
