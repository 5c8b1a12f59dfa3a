"""``kinrank headroom``: whether per-query ranking would pay."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kinrank.cli import files, messages
from kinrank.registry.notation import parse_settings

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet
    from kinrank.measure import PairedComparison
    from kinrank.rankers.knn.ranker import KnnRanker
    from kinrank.study.headroom import Headroom


class OnLeak(StrEnum):
    """What becomes of test queries that were seen in training."""

    refuse = "refuse"
    drop = "drop"
    warn = "warn"


def headroom(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged queries: {files.FORMS}.")],
    test: Annotated[
        str | None, typer.Option(metavar="DATA", help="Judged queries to test on; folds of DATA where not given.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A query column that folds keep together, such as a product.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="How many folds DATA is cut into.")] = 5,
    measure: Annotated[str, typer.Option(metavar="MEASURE", help="NDCG@10, 'NDCG(gain=linear)@5', AP...")] = "NDCG@10",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A parameter of the ranker knn: reference, describe...; repeatable."
        ),
    ] = None,
    candidates: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="All candidates of the test queries, judged or not: counts the unjudged."),
    ] = None,
    leaks: Annotated[OnLeak, typer.Option(help="What to do with test queries seen in training.")] = OnLeak.refuse,
    worth: Annotated[float, typer.Option(min=0, help="The smallest gain worth having.")] = 0.005,
    seed: Annotated[int, typer.Option(help="Of the folds.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Say whether a model per query would rank better than one model for all, with a test and advice."""
    from kinrank.measure import parse_measure
    from kinrank.study.headroom import headroom as study
    from kinrank.study.leaks import near_warning
    from kinrank.study.records import headroom_record

    wanted = parse_measure(measure)
    chosen = parse_settings(_knn(), settings or [])
    with messages.working("reading"):
        queries = files.Source(data).read()
        asked = None if test is None else files.Source(test, queries.n_features).read()
        offered = None if candidates is None else files.Source(candidates, queries.n_features).read()
    with messages.working("studying", folds if asked is None else 1) as advance:
        found = study(
            queries,
            asked,
            ranker=_template(queries, chosen),
            folds=folds,
            group=group,
            measure=wanted,
            leaks=leaks.value,
            candidates=offered,
            worth=worth,
            seed=seed,
            advance=advance,
        )
    warning = near_warning(found.leaks)
    if warning is not None:
        messages.warn(warning)
    if as_json:
        typer.echo(json.dumps(headroom_record(found), indent=2))
        return
    _show(found, group)


def _knn() -> type[KnnRanker]:
    from kinrank.rankers.knn.ranker import KnnRanker

    return KnnRanker


def _template(queries: QuerySet, settings: dict[str, object]) -> KnnRanker:
    from kinrank.study.headroom import default_ranker

    ranker: KnnRanker = default_ranker(queries).set_params(**settings)
    return ranker


def _show(found: Headroom, group: str | None) -> None:
    n, folds = len(found.comparison.queries), len(found.choices)
    cut = f"{folds} folds by {group or 'query'}" if folds > 1 else "tested on queries of their own"
    messages.show(f"{found.measure!r}, {n:,} queries, {cut}")
    for table in (_means(found), _differences(found)):
        messages.show(table)
        messages.show("")
    messages.show(found.advice.text)


def _means(found: Headroom) -> Table:
    chosen = ", ".join(
        f"{each.n_neighbors}" + ("" if each.prior_strength is None else f" ({each.prior_strength:g})")
        for each in found.choices
    )
    said = {
        "Single": "one model for all queries",
        "KNN": f"a model per query; k (and pull to the global model) chosen in training: {chosen}",
        "oracle": "the best weights for each query, from its own judgments: unreachable",
    }
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, mean in found.means.items():
        table.add_row(name, f"{mean:.4f}", said[name])
    return table


def _differences(found: Headroom) -> Table:
    paired = found.gain.paired
    p = f"paired t p = {paired.p:.2g}, permutation p = {found.gain.p_permutation:.2g}"
    unjudged = "not known: the data has judged documents only (--candidates tells)"
    if found.unjudged is not None:
        unjudged = f"{found.unjudged:.1%} of KNN's first ten"
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_row("gain of KNN", f"{_difference(paired)}, {p}")
    table.add_row("queries that", f"gain {paired.wins:,}, stay {paired.ties:,}, lose {paired.losses:,}")
    if found.clean is not None:
        where = f"on the {found.clean.n:,} queries without near-duplicates in training"
        table.add_row("gain elsewhere", f"{_difference(found.clean)} {where}")
    where = "on half of a query's documents, from the other half"
    table.add_row("own judgments", f"{_difference(found.known)} {where}")
    table.add_row("unjudged", unjudged)
    return table


def _difference(paired: PairedComparison) -> str:
    low, high = paired.interval
    return f"{paired.mean_difference:+.4f} ({paired.confidence:.0%}: {low:+.4f} to {high:+.4f})"
