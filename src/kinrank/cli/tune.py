"""``kinrank tune``: choose a ranker, description, k and prior on training queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.inputs import announce, read_queries
from kinrank.cli.options import AsJson, Folds, Group, Leaks, MeasureName, OnLeak
from kinrank.data.source import FORMATS
from kinrank.errors import ParameterError
from kinrank.registry.notation import parse_settings

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet
    from kinrank.study.tuning import Trial, Tuning

SHOWN = 10
"""Number of trials in the table."""


def tune(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged training queries: {FORMATS}.")],
    study: Annotated[
        str, typer.Option(metavar="FOLDER", help="Folder for the trials; an interrupted study there is resumed.")
    ],
    families: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="NAME",
            help="Family to try: single, knn, lambdamart, kin, or any other ranker as it is; repeatable.",
            show_default="single, knn, lambdamart, kin",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Maximum number of trials, including earlier runs.")] = 25,
    budget: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Seconds after which no new trial is started.")
    ] = None,
    validate: Annotated[
        str | None, typer.Option(metavar="DATA", help="Judged validation queries.", show_default="folds of DATA")
    ] = None,
    folds: Folds = 5,
    group: Group = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Parameter of all rankers that are tried: reference=FEATURE or missing=zero; repeatable.",
        ),
    ] = None,
    measure: MeasureName = "NDCG@10",
    leaks: Leaks = OnLeak.refuse,
    seed: Annotated[int, typer.Option(help="Seed for the fold split.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Choose a ranker and its parameters by validation; pass the result to kinrank train --settings."""
    from kinrank.measure import parse_measure
    from kinrank.study import tuning
    from kinrank.study._records import tuning_record

    wanted = parse_measure(measure)
    shared = parse_settings(None, settings or [])
    for name in shared.keys() - {"reference", "missing"}:
        raise ParameterError(f"--set {name}: tune chooses it; set reference or missing, or use kinrank train --set")
    queries = read_queries(data)
    announce(queries, data, shared.get("missing", "mean"))
    held_out = None if validate is None else read_queries(validate, queries.n_features)
    plan = tuning.Plan(
        families=families,
        n_trials=trials,
        seconds=budget,
        folds=folds,
        group=group,
        reference=_feature(shared.get("reference"), queries),
        missing=shared.get("missing", "mean"),
        measure=wanted,
        leaks=leaks.value,
        seed=seed,
    )
    with console.progress("tuning", trials) as advance:
        found = tuning.tune(
            queries, study, plan, validation=held_out, on_trial=lambda trial: _print_trial(trial, advance)
        )
    if as_json:
        typer.echo(json.dumps(tuning_record(found), indent=2, allow_nan=False))
        return
    console.print_result(f"{wanted!r}, {len(found.trials)} trials; {found.stopped}")
    console.print_result(_table(found))
    if found.answer is not None:
        console.print_result("")
        console.print_result(f"by the trials themselves: {found.answer.result}")
    console.print_result("")
    console.print_result(f"kinrank train {data} --settings {study}/settings.json --model MODEL")


def _feature(reference: str | int | None, queries: QuerySet) -> str | int | None:
    """Return the feature name, or its position if it is a number that names no feature."""
    return str(reference) if str(reference) in queries.feature_names else reference


def _print_trial(trial: Trial, advance: Callable[[int], None]) -> None:
    console.info(f"{trial.quality:.4f}  {trial.family}  {_settings(trial)}  {trial.seconds:.1f} s")
    advance(1)


def _settings(trial: Trial) -> str:
    return " ".join(repr(trial.make()).split())


def _table(found: Tuning) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("quality", justify="right")
    table.add_column("family")
    table.add_column("seconds", justify="right")
    table.add_column("settings")
    ordered = sorted(found.trials, key=lambda trial: -trial.quality)
    for trial in ordered[:SHOWN]:
        table.add_row(f"{trial.quality:.4f}", trial.family, f"{trial.seconds:.1f}", _settings(trial))
    return table
