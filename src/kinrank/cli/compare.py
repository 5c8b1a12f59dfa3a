"""``kinrank compare``: compare rankers, models and runs on one judged test set."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.comparison_tables import correction_note, cost_table, coverage_warnings, means_table, pairs_table
from kinrank.cli.inputs import announce, read_queries, warn_if_perfect
from kinrank.cli.options import AsJson, Group, Leaks, MeasureNames, OnLeak, Seed
from kinrank.data.source import FORMATS
from kinrank.errors import ParameterError


def compare(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged test queries: {FORMATS}.")],
    entrants: Annotated[
        list[str],
        typer.Argument(
            metavar="ENTRANT",
            help="A ranker such as 'knn(n_neighbors=400)'; lightgbm, xgboost or catboost; a model folder; a TREC run.",
        ),
    ],
    train: Annotated[str | None, typer.Option(metavar="DATA", help="Judged queries to fit rankers on.")] = None,
    folds: Annotated[
        int | None, typer.Option(min=2, help="Number of cross-validation folds of DATA, instead of --train.")
    ] = None,
    group: Group = None,
    measures: MeasureNames = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="ENTRANT", help="Entrant to compare the others with.", show_default="the first"),
    ] = None,
    all_pairs: Annotated[bool, typer.Option("--all-pairs", help="Test every pair of entrants.")] = False,
    ladder: Annotated[
        bool,
        typer.Option(help="Also fit what shows where a gain of kin comes from: LightGBM, kin without local models."),
    ] = True,
    leaks: Leaks = OnLeak.refuse,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Compare the quality and cost of rankers, other libraries, models and runs; tests are Holm-corrected."""
    from kinrank.measure import parse_measure
    from kinrank.study.entrants import needs_fitting
    from kinrank.study.experiment import run_experiment
    from kinrank.study.leaks import leak_warning
    from kinrank.study.records import comparison_record

    wanted = list(dict.fromkeys(parse_measure(text) for text in measures or ["NDCG@10"]))
    names = list(dict.fromkeys([*([] if baseline is None else [baseline]), *entrants]))
    if train is not None and folds is not None:
        raise ParameterError("--train and --folds cannot be combined")
    if train is None and folds is None:
        for name in filter(needs_fitting, names):
            raise ParameterError(f"{name!r} must be fitted: add --train DATA or --folds N")
    queries = read_queries(data)
    known = None if train is None else read_queries(train, queries.n_features)
    announce(queries if known is None else known, train or data)
    with console.progress("comparing", len(names) * (folds or 1)) as advance:
        found = run_experiment(
            names,
            queries,
            train=known,
            folds=folds,
            group=group,
            measures=wanted,
            baseline=baseline,
            pairs="all" if all_pairs else "baseline",
            leaks=leaks.value,
            ladder=ladder,
            seed=seed,
            advance=advance,
        )
    comparison = found.comparison
    warning = leak_warning(found.leaks)
    if warning is not None:
        console.warn(warning)
    for name in found.unchecked:
        console.warn(f"{name}: its training queries are unknown, so overlap with the test queries was not checked")
    for message in coverage_warnings(comparison):
        console.warn(message)
    warn_if_perfect({entrant.name: entrant.evaluation[wanted[0]] for entrant in comparison.entrants})
    if as_json:
        typer.echo(json.dumps(comparison_record(comparison, found.answer), indent=2, allow_nan=False))
        return
    for measure in wanted:
        console.print_result(f"{measure!r}, {len(comparison.queries):,} queries")
        console.print_result(means_table(comparison, measure, "entrant", permutation=True))
        console.print_result("")
        if all_pairs and len(comparison.entrants) > 2:
            console.print_result(pairs_table(comparison, measure))
            console.print_result("")
    console.print_result(cost_table(comparison))
    if comparison.differences:
        against = "for every pair" if all_pairs else f"against {comparison.baseline.name}"
        console.print_result("")
        console.print_result(
            f"p: paired t-test {against}; permutation: sign-flip permutation test"
            f"{correction_note(comparison, '; both ')}"
        )
    if found.answer is not None:
        console.print_result("")
        console.print_result(found.answer.text)
