"""``kinrank compare``: compare rankers, models and runs on one judged test set."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.comparison_tables import (
    comparison_warnings,
    cost_table,
    means_table,
    note_on_tests,
    print_near_and_far,
    print_traffic,
    recommendation,
)
from kinrank.cli.inputs import announce, read_evidence, read_queries
from kinrank.cli.options import (
    AsJson,
    EngineFeature,
    EvidenceFolder,
    Families,
    Group,
    Leaks,
    MeasureNames,
    OnLeak,
    Seed,
)
from kinrank.data.source import FORMATS
from kinrank.errors import ParameterError

ENGINE = "engine"
"""The value of ``--baseline`` that stands for the order of the engine."""


def compare(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged test queries: {FORMATS}.")],
    entrants: Annotated[
        list[str],
        typer.Argument(
            metavar="ENTRANT",
            help="A ranker such as 'knn(n_neighbors=400)'; lightgbm; a model folder; a TREC run, "
            "optionally .gz or .xz.",
        ),
    ],
    train: Annotated[str | None, typer.Option(metavar="DATA", help="Judged queries to fit rankers on.")] = None,
    folds: Annotated[
        int | None, typer.Option(min=2, help="Number of cross-validation folds of DATA, instead of --train.")
    ] = None,
    group: Group = None,
    families: Families = None,
    measures: MeasureNames = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="ENTRANT",
            help="Entrant to compare the others with: what runs today; engine for the order of the engine.",
            show_default="the engine if --engine-feature names its order, else the first",
        ),
    ] = None,
    ladder: Annotated[
        bool,
        typer.Option(help="Also fit what shows where a gain of kin comes from: LightGBM, kin without local models."),
    ] = True,
    evidence: EvidenceFolder = None,
    engine: EngineFeature = None,
    leaks: Leaks = OnLeak.refuse,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure rankers, other libraries, models, runs and the engine, and compare them with what runs today."""
    from kinrank.measure import parse_measure
    from kinrank.study._answer import RUNGS
    from kinrank.study._entrants import needs_fitting, origin_of
    from kinrank.study._leaks import leak_warning
    from kinrank.study._records import comparison_record
    from kinrank.study.experiment import run_experiment
    from kinrank.study.ladder import engine_feature

    wanted = list(dict.fromkeys(parse_measure(text) for text in measures or ["NDCG@10"]))
    by_engine = baseline == ENGINE
    baseline = None if by_engine else baseline
    names = list(dict.fromkeys([*([] if baseline is None else [baseline]), *entrants]))
    if train is not None and folds is not None:
        raise ParameterError("--train and --folds cannot be combined")
    if train is None and folds is None:
        for name in filter(needs_fitting, names):
            raise ParameterError(f"{name!r} must be fitted: add --train DATA or --folds N")
    split = read_evidence(evidence)
    queries = read_queries(data)
    judged = None if train is None else read_queries(train, queries.n_features)
    order = engine
    if order is None and (by_engine or not any(origin_of(name) == "run" for name in names)):  # a run is such an order
        order = engine_feature(queries)
    if by_engine and order is None:
        raise ParameterError("--baseline engine needs the order of the engine: name it with --engine-feature FEATURE")
    if order is not None and baseline is None:
        by_engine = by_engine or engine is not None or len(names) == 1
        baseline = RUNGS["engine"] if by_engine else names[0]
    if train is not None or folds is not None:
        announce(queries if judged is None else judged, train or data)
    with console.progress("comparing"):
        found = run_experiment(
            names,
            queries,
            train=judged,
            folds=folds,
            group=group,
            measures=wanted,
            baseline=baseline,
            leaks=leaks.value,
            ladder=ladder,
            seed=seed,
            evidence=split,
            families=families,
            engine=order,
        )
    for message in found.notes:
        console.info(message)
    comparison = found.comparison
    warning = leak_warning(found.leaks)
    if warning is not None:
        console.warn(warning)
    for message in comparison_warnings(comparison, found.answer, unchecked=found.unchecked, evidence=split is not None):
        console.warn(message)
    if as_json:
        typer.echo(json.dumps(comparison_record(comparison, found.answer), indent=2, allow_nan=False))
        return
    for measure in wanted:
        console.print_result(f"{measure!r}, {len(comparison.queries):,} queries")
        console.print_result(means_table(comparison, measure, "entrant"))
        console.print_result("")
    if any(entrant.rank_seconds is not None for entrant in comparison.entrants):
        console.print_result(cost_table(comparison))
        console.print_result("")
    if comparison.differences:
        console.print_result(note_on_tests(comparison))
        console.print_result("")
    if order is not None:
        console.print_result(recommendation(comparison, wanted[0], train or data))
        console.print_result("")
    print_near_and_far(found.near_and_far)
    if found.answer is not None:
        print_traffic(found.answer)
        console.print_result(found.answer.text)
