"""``kinrank hybrid``: weigh the scores of a hybrid search, per query or the same for all."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kinrank.cli import console
from kinrank.cli.comparison_tables import difference_with_interval, means_table, note_on_tests
from kinrank.cli.inputs import announce, read_queries
from kinrank.cli.options import EXAMPLES, AsJson, Folds, Group, Leaks, MeasureName, OnLeak, Seed, TestData
from kinrank.cli.train import check_replaceable
from kinrank.data.source import FORMATS
from kinrank.errors import DataError, ParameterError

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet
    from kinrank.rankers import Ranker
    from kinrank.study.hybrid import Hybrid
    from kinrank.study.hybrid_plan import Basis, HybridPlan


class Scale(StrEnum):
    """Normalization of the scores of a query."""

    auto = "auto"
    none = "none"
    min_max = "min_max"
    l2 = "l2"
    z_score = "z_score"


class From(StrEnum):
    """What the weights of a query are predicted from."""

    text = "text"
    candidates = "candidates"


def hybrid(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help=f"Judged queries with two or more scores per candidate: {FORMATS}.")
    ],
    test: TestData = None,
    score: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Score of one search; repeatable.", show_default="all features"),
    ] = None,
    normalization: Annotated[
        Scale, typer.Option(help="Normalization in your engine; auto chooses the best on training queries.")
    ] = Scale.auto,
    encoder: Annotated[str, typer.Option(metavar="NAME", help="Encoder of query texts.")] = "ngrams",
    group: Group = None,
    folds: Folds = 5,
    measure: MeasureName = "NDCG@10",
    leaks: Leaks = OnLeak.refuse,
    seed: Seed = 0,
    model: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Model folder to write; overwritten if present.")
    ] = None,
    basis: Annotated[
        From | None,
        typer.Option(
            "--from", help="What the model predicts weights from.", show_default="the text, if the queries have texts"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare weights per query with rank fusion and one set of weights, and write a model if they rank better."""
    from kinrank.measure import parse_measure
    from kinrank.rankers.knn.ranker import KnnRanker
    from kinrank.study.hybrid import hybrid as study
    from kinrank.study.hybrid_plan import HybridPlan
    from kinrank.study.leaks import leak_warning
    from kinrank.study.records import hybrid_record

    plan = HybridPlan(normalization.value, KnnRanker(encoder=encoder), group, parse_measure(measure), seed)
    if model is not None:
        check_replaceable(model)
    queries = _scores(read_queries(data), score, data)
    announce(queries, data, missing="the search did not return the document, which counts as score 0")
    tests = None if test is None else _scores(read_queries(test), score, test)
    chosen = _basis(queries, basis)
    with console.progress("weighing scores"):
        found = study(queries, tests, plan=plan, folds=folds, leaks=leaks.value)
    warning = leak_warning(found.leaks)
    if warning is not None:
        console.warn(warning)
    if as_json:
        typer.echo(json.dumps(hybrid_record(found), indent=2, allow_nan=False))
    else:
        _print(found, chosen, group)
    if model is not None:
        _write(model, queries, plan, found, chosen)


def _scores(queries: QuerySet, names: list[str] | None, path: str) -> QuerySet:
    """Return the queries with the chosen features only."""
    if not names:
        return queries
    unknown = [name for name in names if name not in queries.feature_names]
    if unknown:
        raise DataError(f"{path}: no feature {unknown[0]!r}; features: {', '.join(queries.feature_names)}")
    columns = [queries.feature_names.index(name) for name in names]
    return queries.replace(X=queries.X[:, columns], feature_names=tuple(names))


def _basis(queries: QuerySet, wanted: From | None) -> Basis:
    from kinrank.study.hybrid_plan import bases_of

    possible = bases_of(queries)
    if wanted is None:
        return possible[0]
    if wanted.value not in possible:
        raise ParameterError("--from text needs query texts: add a column named text to DATA")
    return wanted.value


def _print(found: Hybrid, basis: Basis, group: str | None) -> None:
    n, folds = len(found.comparison.queries), len(found.best)
    split = f"{folds} folds by {group or 'query'}" if folds > 1 else "separate test set"
    console.print_result(f"{found.measure!r}, {n:,} queries, {split}")
    table = means_table(found.comparison, found.measure, "weights")
    table.add_row(found.oracle.name, f"{found.oracle.evaluation[found.measure]:.4f}")
    console.print_result(table)
    console.print_result("")
    console.print_result(note_on_tests(found.comparison))
    console.print_result(_chosen(found))
    console.print_result("")
    console.print_result(_verdict(found, basis))


def _chosen(found: Hybrid) -> Table:
    """Return a table of what was chosen on the training queries of each fold."""
    table = Table(box=None, pad_edge=False)
    names = found.comparison.queries.feature_names
    table.add_column("chosen in fold")
    table.add_column("best global weights")
    for name in names:
        table.add_column(name, justify="right")
    for basis in found.per_query:
        table.add_column(f"from {basis}")
    for fold, best in enumerate(found.best):
        learned = [each[fold] for each in found.per_query.values()]
        chosen = [f"{each.fusion.name}, k = {each.choice.n_neighbors}" for each in learned]
        table.add_row(str(fold + 1), best.fusion.name, *(f"{weight:.3g}" for weight in best.weights), *chosen)
    return table


def _verdict(found: Hybrid, basis: Basis) -> str:
    claim = found.claim(basis)
    verdict = f"{claim.sentence()} ({claim.evidence})."
    if claim.verdict == "gain":
        control = found.over_learned[basis]
        gained = difference_with_interval(control, tested=f"p = {control.p:.2g}")
        return f"{verdict} Over one set of weights by the same learner the gain is {gained}."
    if found.one_search_is_enough:
        alone = found.best_alone
        difference = difference_with_interval(alone.paired, tested=f"p = {alone.paired.p:.2g}")
        return (
            f"{verdict} No mixture is significantly better than {alone.name} alone, which differs from the best global "
            f"weights by {difference}. Use {alone.name} alone, or judge more queries."
        )
    return f"{verdict} Use the best global weights{f': {claim.open}' if claim.verdict == 'unclear' else ''}."


def _write(path: str, queries: QuerySet, plan: HybridPlan, found: Hybrid, basis: Basis) -> None:
    """Fit on all queries and save: weights per query if they gained, otherwise the same weights for all."""
    from kinrank.study.hybrid_plan import global_ranker

    with console.progress("fitting on all queries"):
        if found.claim(basis).verdict == "gain":
            fitted: Ranker = plan.per_query(queries, basis).ranker
            kept = f"weights per query, from the {basis}"
        else:
            best = plan.global_weights(queries)
            fitted = global_ranker(queries, best[plan.best_fusion(best).name])
            kept = "the same weights for every query"
    fitted.save(path, examples=queries[:EXAMPLES])
    applied = "raw" if fitted.normalization is None else fitted.normalization
    console.info(f"{path}: {kept}, for {applied} scores")
