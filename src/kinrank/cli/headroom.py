"""``kinrank headroom``: estimate what each part of kinrank would gain."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.comparison_tables import difference_with_interval, print_near_and_far, print_traffic
from kinrank.cli.inputs import announce, read_evidence, read_queries, warn_if_perfect
from kinrank.cli.options import (
    AsJson,
    EngineFeature,
    EvidenceFolder,
    Families,
    Folds,
    Group,
    Leaks,
    MeasureName,
    OnLeak,
    Seed,
    TestData,
)
from kinrank.data.source import FORMATS
from kinrank.registry.notation import parse_settings

if TYPE_CHECKING:
    from kinrank.rankers.kin.ranker import KinRanker
    from kinrank.study._answer import Answer
    from kinrank.study.headroom import Headroom


def headroom(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged queries: {FORMATS}.")],
    test: TestData = None,
    group: Group = None,
    families: Families = None,
    folds: Folds = 5,
    measure: MeasureName = "NDCG@10",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Parameter of the ranker kin, such as reference=...; repeatable."
        ),
    ] = None,
    linear: Annotated[
        bool, typer.Option("--linear", help="Measure linear models only, which takes seconds instead of minutes.")
    ] = False,
    engine: EngineFeature = None,
    details: Annotated[
        bool, typer.Option("--details", help="Also measure a bag of LightGBM models, and show all that was measured.")
    ] = False,
    evidence: EvidenceFolder = None,
    leaks: Leaks = OnLeak.refuse,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Estimate what kinrank would gain: your engine, LightGBM, memory and weights per query, step by step."""
    from kinrank.measure import parse_measure
    from kinrank.study._leaks import leak_warning
    from kinrank.study._records import headroom_record
    from kinrank.study.headroom import ORACLE
    from kinrank.study.headroom import headroom as study

    wanted = parse_measure(measure)
    ranker = _kin(settings or [])
    split = read_evidence(evidence)
    queries = read_queries(data)
    announce(queries, data, ranker.missing)
    tests = None if test is None else read_queries(test, queries.n_features)
    with console.progress("fitting and testing"):
        found = study(
            queries,
            tests,
            ranker=ranker,
            trees=not linear,
            folds=folds,
            group=group,
            measure=wanted,
            leaks=leaks.value,
            seed=seed,
            evidence=split,
            families=families,
            engine=engine,
            details=details,
            on_first_answer=lambda first: console.info(f"linear models only: {first.result} Trees follow."),
        )
    for message in found.notes:
        console.info(message)
    warning = leak_warning(found.leaks)
    if warning is not None:
        console.warn(warning)
    warn_if_perfect({name: mean for name, mean in found.means.items() if name != ORACLE})
    if as_json:
        typer.echo(json.dumps(headroom_record(found), indent=2))
        return
    _print(found, details, _command(data, evidence, found))


def _kin(settings: list[str]) -> KinRanker:
    from kinrank.rankers.kin.ranker import KinRanker

    return KinRanker(**parse_settings(KinRanker, settings))


def _command(data: str, evidence: str | None, found: Headroom) -> str | None:
    """Return the command that trains what is recommended; None if that is nothing of kinrank."""
    answer = found.answer
    if answer.verdict != "gain":
        return None
    chosen = answer.choices is not None and answer.choices.claim.verdict == "gain"
    ranker = "" if "kin" in answer.means else " --ranker knn"
    return f"kinrank train {data}{ranker}{f' --evidence {evidence}' if chosen else ''} --model model"


def _print(found: Headroom, details: bool, command: str | None) -> None:
    console.print_result(found.answer.line)
    if found.answer.choices is not None:
        console.print_result(found.answer.choices.text)
    if command is not None:
        console.print_result(f"  {command}")
    console.print_result("")
    console.print_result(_measured(found))
    console.print_result(_ladder(found.answer))
    print_traffic(found.answer)
    if details:
        console.print_result("")
        _print_details(found)
    elif found.answer.note:
        console.print_result(found.answer.note)


def _measured(found: Headroom) -> str:
    """Return the measure and the split in words."""
    n, folds = len(found.comparison.queries), len(found.choices)
    split = f"{found.n_folds} folds by {found.by}" if found.n_folds > 1 else "separate test set"
    if folds < found.n_folds:
        split = f"{folds} of {split}, {n:,} of {found.n_queries:,} queries"
    return f"{found.measure!r}, {n:,} queries, {split}"


def _ladder(answer: Answer) -> Table:
    """Return the table of rungs, each with its difference to the one before."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, mean, step in answer.steps:
        table.add_row(name, f"{mean:.4f}", "" if step is None else f"{step:+.4f}")
    return table


def _print_details(found: Headroom) -> None:
    for table in (_means(found), _differences(found)):
        console.print_result(table)
        console.print_result("")
    print_near_and_far(found.answer.near_and_far)
    console.print_result(found.answer.text)


def _means(found: Headroom) -> Table:
    from kinrank.study._answer import RUNGS

    chosen = ", ".join(
        f"{each.n_neighbors}" + ("" if each.prior_strength is None else f" ({each.prior_strength:g})")
        for each in found.choices
    )
    notes = {
        RUNGS["local"]: f"k (and prior strength) chosen on training queries: {chosen}",
        "oracle": "the best weights for each query, fitted to its own judgments: an unreachable upper bound",
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, mean in found.means.items():
        table.add_row(name, f"{mean:.4f}", notes.get(name, ""))
    return table


def _differences(found: Headroom) -> Table:
    answer = found.answer
    unjudged = "unknown: DATA holds judged documents only"
    if found.unjudged is not None:
        unjudged = f"{found.unjudged:.1%} of the top 10 of {answer.gain.name}"
    table = Table(box=None, pad_edge=False, show_header=False)
    for claim in answer.claims:
        table.add_row(f"{claim.name} vs. {claim.against}", difference_with_interval(claim.paired, tested=claim.tested))
    paired = answer.gain.paired
    table.add_row("queries", f"{paired.wins:,} gain, {paired.ties:,} are unchanged, {paired.losses:,} lose")
    if found.clean is not None:
        without = f"on the {found.clean.n:,} queries without near-duplicates in training"
        table.add_row("without duplicates", f"{difference_with_interval(found.clean)} {without}")
    table.add_row("unjudged", unjudged)
    return table
