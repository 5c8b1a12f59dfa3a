"""``kinrank evaluate``: measure runs on judged queries and compare them with a baseline."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinrank.cli import console
from kinrank.cli.comparison_tables import correction_note, coverage_warnings, means_table
from kinrank.cli.inputs import read_queries
from kinrank.cli.options import AsJson, MeasureNames
from kinrank.data.source import FORMATS
from kinrank.errors import ParameterError

if TYPE_CHECKING:
    from kinrank.measure import Measure
    from kinrank.study.comparison import Comparison

DEFAULT_MEASURE = "NDCG@10"


def evaluate(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged queries with document ids: {FORMATS}.")],
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="TREC run, optionally .gz or .xz, or a model folder.")
    ],
    measures: MeasureNames = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="Run to compare the others with.", show_default="the first"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure runs and models on judged queries, with Holm-corrected paired t-tests against a baseline."""
    from kinrank.measure import parse_measure
    from kinrank.study.comparison import compare
    from kinrank.study.entrants import evaluate_entrant, needs_fitting

    wanted = list(dict.fromkeys(parse_measure(text) for text in measures or [DEFAULT_MEASURE]))
    paths = list(dict.fromkeys([baseline or runs[0], *runs]))
    for name in filter(needs_fitting, paths):
        raise ParameterError(f"{name!r} must be fitted first: use kinrank compare DATA {name} --train DATA")
    queries = read_queries(data)
    with console.progress("measuring", len(paths)) as advance:
        measured = []
        for path in paths:
            measured.append(evaluate_entrant(path, queries, wanted))
            advance(1)
    comparison = compare(queries, measured)
    for message in coverage_warnings(comparison):
        console.warn(message)
    if as_json:
        typer.echo(json.dumps(_record(comparison, wanted), indent=2, allow_nan=False))
        return
    for measure in wanted:
        console.print_result(f"{measure!r}, {len(queries):,} queries")
        console.print_result(means_table(comparison, measure, "run"))
        console.print_result("")
    if comparison.differences:
        console.print_result(f"p: paired t-test against {comparison.baseline.name}{correction_note(comparison, ', ')}")


def _record(comparison: Comparison, measures: list[Measure]) -> dict[str, Any]:
    """Return the content of the tables, and the uncorrected p-values, as JSON values."""
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
