"""``kinrank compare``: any rankers, models and runs on one judged test set."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kinrank.cli import files, messages
from kinrank.cli.headroom import OnLeak
from kinrank.cli.tables import cost_table, gaps, means_table, pairs_table


def compare(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged queries to test on: {files.FORMS}.")],
    entrants: Annotated[
        list[str],
        typer.Argument(
            metavar="ENTRANT",
            help="A ranker, 'knn(n_neighbors=400)'; lightgbm, xgboost or catboost; a model folder; a TREC run.",
        ),
    ],
    train: Annotated[str | None, typer.Option(metavar="DATA", help="Judged queries that rankers learn from.")] = None,
    folds: Annotated[
        int | None, typer.Option(min=2, help="Instead of --train: cut DATA into so many folds, each tested once.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="A query column that folds keep together, such as a product.")
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            metavar="MEASURE",
            help="NDCG@10, 'NDCG(gain=linear)@5', AP...; repeatable.",
            show_default="NDCG@10",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="ENTRANT", help="What the others are compared with.", show_default="the first"),
    ] = None,
    all_pairs: Annotated[bool, typer.Option("--all-pairs", help="Test every pair, not the baseline alone.")] = False,
    leaks: Annotated[OnLeak, typer.Option(help="What to do with test queries seen in training.")] = OnLeak.refuse,
    seed: Annotated[int, typer.Option(help="Of the folds.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare rankers, other libraries, models and runs: quality with tests corrected by Holm, and cost."""
    from kinrank.measure import parse_measure
    from kinrank.study.contest import contest
    from kinrank.study.leaks import near_warning
    from kinrank.study.records import comparison_record

    wanted = list(dict.fromkeys(parse_measure(text) for text in measures or ["NDCG@10"]))
    names = list(dict.fromkeys([*([] if baseline is None else [baseline]), *entrants]))
    with messages.working("reading"):
        queries = files.Source(data).read()
        known = None if train is None else files.Source(train, queries.n_features).read()
    with messages.working("comparing", len(names) * (folds or 1)) as advance:
        found = contest(
            names,
            queries,
            train=known,
            folds=folds,
            group=group,
            measures=wanted,
            baseline=baseline,
            pairs="all" if all_pairs else "baseline",
            leaks=leaks.value,
            seed=seed,
            advance=advance,
        )
    comparison = found.comparison
    warning = near_warning(found.leaks)
    if warning is not None:
        messages.warn(warning)
    for name in found.unchecked:
        messages.warn(f"{name}: does not know which queries it was learned from: that these are others is not checked")
    for entrant in comparison.entrants:
        if entrant.coverage is not None:
            for gap in gaps(entrant.name, entrant.coverage, comparison.queries.n_rows):
                messages.warn(gap)
    if as_json:
        typer.echo(json.dumps(comparison_record(comparison), indent=2, allow_nan=False))
        return
    for measure in wanted:
        messages.show(f"{measure!r}, {len(comparison.queries):,} queries")
        messages.show(means_table(comparison, measure, "entrant", permutation=True))
        messages.show("")
        if all_pairs and len(comparison.entrants) > 2:
            messages.show(pairs_table(comparison, measure))
            messages.show("")
    messages.show(cost_table(comparison))
    if comparison.differences:
        against = "of every pair" if all_pairs else f"against {comparison.baseline.name}"
        messages.show("")
        messages.show(
            f"p: paired t {against}; permutation: signs of the differences flipped; both corrected by Holm for the "
            f"number of tests ({len(comparison.differences)})"
        )
