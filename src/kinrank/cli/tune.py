"""``kinrank tune``: ranker, description, k and prior chosen on training queries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kinrank.cli import files, messages

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet
    from kinrank.study.trials import Trial
    from kinrank.study.tuning import Nested, Plan, Tuning

SHOWN = 10


def tune(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged training queries: {files.FORMS}.")],
    study: Annotated[
        str, typer.Option(metavar="FOLDER", help="Where trials are kept; a study that was stopped there goes on.")
    ],
    families: Annotated[
        list[str] | None,
        typer.Option("--try", metavar="NAME", help="single, knn, lambdamart, kin; repeatable.", show_default="all"),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="The most trials, earlier ones included.")] = 25,
    budget: Annotated[float | None, typer.Option(metavar="SECONDS", help="No trial is begun after so long.")] = None,
    validate: Annotated[
        str | None, typer.Option(metavar="DATA", help="Judged queries to choose by; folds of DATA where not given.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="How many folds DATA is cut into.")] = 5,
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A query column that folds keep together, such as a product.")
    ] = None,
    reference: Annotated[
        str | None, typer.Option(metavar="FEATURE", help="Whose best candidates describe a query, such as BM25.")
    ] = None,
    missing: Annotated[str, typer.Option(help="What a missing feature becomes: error, zero or mean.")] = "error",
    measure: Annotated[str, typer.Option(metavar="MEASURE", help="NDCG@10, 'NDCG(gain=linear)@5', AP...")] = "NDCG@10",
    nested: Annotated[
        bool, typer.Option("--nested", help="Also measure what tuning itself reaches, by an outer cross-validation.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Of folds and sampler.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose a ranker and its settings by validation, within a budget; kinrank train --settings takes the winner."""
    from kinrank.measure import parse_measure
    from kinrank.study import tuning
    from kinrank.study.records import tuning_record

    wanted = parse_measure(measure)
    with messages.working("reading"):
        queries = files.Source(data).read()
        held_out = None if validate is None else files.Source(validate, queries.n_features).read()
    plan = tuning.Plan(
        families=families,
        n_trials=trials,
        seconds=budget,
        folds=folds,
        group=group,
        reference=_feature(reference, queries),
        missing=missing,  # type: ignore[arg-type]  # what is none of the three is refused by the ranker
        measure=wanted,
        seed=seed,
    )
    with messages.working("tuning", trials) as advance:
        found = tuning.tune(queries, study, plan, validation=held_out, told=lambda trial: _tell(trial, advance))
    outer = _nested(queries, study, plan) if nested else None
    if as_json:
        typer.echo(json.dumps(tuning_record(found, outer), indent=2, allow_nan=False))
        return
    messages.show(f"{wanted!r}, {len(found.trials)} trials; {found.stopped}")
    messages.show(_table(found))
    if outer is not None:
        messages.show("")
        messages.show(_outer_line(outer))
    messages.show("")
    messages.show(f"kinrank train {data} --settings {study}/settings.json --model MODEL")


def _feature(reference: str | None, queries: QuerySet) -> str | int | None:
    """A feature by name, or by position where no feature has that name."""
    if reference is None or reference in queries.feature_names or not reference.isdigit():
        return reference
    return int(reference)


def _nested(queries: QuerySet, study: str, plan: Plan) -> Nested:
    from kinrank.study import tuning

    with messages.working("tuning each outer fold", plan.n_trials * plan.folds) as advance:
        return tuning.nested(queries, f"{study}/nested", plan, told=lambda trial: _tell(trial, advance))


def _tell(trial: Trial, advance: Callable[[int], None]) -> None:
    messages.say(f"{trial.quality:.4f}  {trial.family}  {_settings(trial)}  {trial.seconds:.1f} s")
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


def _outer_line(outer: Nested) -> str:
    paired = outer.gain
    low, high = paired.interval
    return (
        f"tuned without the queries tested on {outer.means[0]:.4f}, one linear model {outer.means[1]:.4f}: "
        f"{paired.mean_difference:+.4f} ({paired.confidence:.0%}: {low:+.4f} to {high:+.4f}, paired t "
        f"p = {paired.p:.2g})"
    )
