"""Fit, rank, measure and compare entrants on a test set or on folds, after checking for leaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kinrank.data.queryset import QuerySet
from kinrank.errors import LeakError, ParameterError
from kinrank.measure import NDCG, Measure
from kinrank.study.answer import RUNGS, Answer
from kinrank.study.comparison import Comparison, Entrant, Fittable, Pairs, compare
from kinrank.study.entrants import evaluate_entrant, make_ranker, needs_fitting, pool_folds
from kinrank.study.folds import Fold, OnLeak, PooledQueries, checked_folds
from kinrank.study.ladder import DECISIVE, answer_of, climb, missing_trees, rung_of
from kinrank.study.leaks import LeakReport


@dataclass(frozen=True, eq=False)
class Experiment:
    """A comparison, what it says about per-query ranking, and the leaks that were found.

    Attributes
    ----------
    comparison : Comparison
        The comparison.
    leaks : tuple of LeakReport
        One report per fold; empty without training queries.
    unchecked : tuple of str
        Names of models whose training queries are unknown.
    answer : Answer or None
        What the ladder says about the first entrant with a model per query, in the first measure; None without one.
    """

    comparison: Comparison
    leaks: tuple[LeakReport, ...]
    unchecked: tuple[str, ...] = ()
    answer: Answer | None = None


def run_experiment(
    names: Sequence[str],
    queries: QuerySet,
    *,
    train: QuerySet | None = None,
    folds: int | None = None,
    group: str | None = None,
    measures: Sequence[Measure] = (NDCG @ 10,),
    baseline: str | None = None,
    pairs: Pairs = "baseline",
    leaks: OnLeak = "refuse",
    ladder: bool = True,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> Experiment:
    """Fit, rank, measure and compare entrants.

    Parameters
    ----------
    names
        Rankers, other libraries, model folders and run files; see `kinrank.study.entrants.evaluate_entrant`.
    queries
        Judged test queries.
    train
        Judged queries to fit rankers on.
    folds
        Number of cross-validation folds of `queries`, instead of `train`.
    group
        Query column whose values are never split across folds or validation parts.
    measures, baseline, pairs
        As in `kinrank.study.comparison.compare`.
    leaks
        What to do with test queries seen in training: raise, drop them, or keep them.
    ladder
        Whether to fit the rungs of `kinrank.study.ladder` that `kin` is compared with, if they are not entrants.
    seed
        Seed for the fold split.
    advance
        Called with 1 after every entrant of every fold.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> found = run_experiment(["single", "knn(n_neighbors=5)"], make_two_camps(n_queries=60, seed=0), folds=3)
    >>> [round(entrant.evaluation[NDCG @ 10], 2) for entrant in found.comparison.entrants]
    [0.41, 1.0]
    """
    unchecked: set[str] = set()
    fitted = {name: needs_fitting(name) for name in names}  # unknown names raise before any work
    splits = _split(fitted, queries, train, folds, group, leaks, seed)
    tested = PooledQueries.of(splits, queries)
    entrants = []
    for name, per_fold in fitted.items():
        # Models and runs are the same in every fold: evaluate them once, on all queries.
        test_and_train = [(fold.test, fold.train) for fold in splits] if per_fold else [(tested.queries, None)]
        parts = []
        for test, known in test_and_train:
            parts.append(_evaluate(name, test, measures, known, group, leaks, unchecked))
            advance(max(1, len(splits)) // len(test_and_train))
        entrants.append(parts[0] if len(parts) == 1 else pool_folds(name, parts, tested.queries, tested.rows, measures))
    comparison = compare(tested.queries, entrants, baseline=baseline, pairs=pairs)
    answer = _answer(entrants, measures[0], splits if ladder else [], tested, group)
    return Experiment(comparison, tuple(fold.leaks for fold in splits), tuple(sorted(unchecked)), answer)


def _answer(
    entrants: Sequence[Entrant], measure: Measure, splits: Sequence[Fold], tested: PooledQueries, group: str | None
) -> Answer | None:
    """Return what the ladder says; the rungs that decide and are not entrants are fitted on every fold."""
    rungs: dict[str, Entrant] = {}
    rankers: dict[str, Fittable] = {}
    for entrant in entrants:
        ranker = entrant.ranker if entrant.ranker is not None else _unfitted(entrant, group)
        rung = rung_of(ranker)
        if rung is not None and ranker is not None and rung not in rungs:
            rungs[rung], rankers[rung] = entrant, ranker
    note = ""
    if "kin" in rungs and splits:
        note = missing_trees(splits[0].train)
        parts = [
            climb(
                rankers["kin"], fold.train, fold.test, measure, rungs=[each for each in DECISIVE if each not in rungs]
            )
            for fold in splits
        ]
        for rung in parts[0]:
            each = [part[rung] for part in parts]
            rungs[rung] = (
                each[0] if len(each) == 1 else pool_folds(RUNGS[rung], each, tested.queries, tested.rows, [measure])
            )
    return answer_of(rungs, measure, note=note)


def _unfitted(entrant: Entrant, group: str | None) -> Fittable | None:
    """Return the unfitted ranker of an entrant with one ranker per fold."""
    return None if entrant.origin == "run" else make_ranker(entrant.name, group=group)


def _split(
    fitted: Mapping[str, bool],
    queries: QuerySet,
    train: QuerySet | None,
    folds: int | None,
    group: str | None,
    leaks: OnLeak,
    seed: int,
) -> list[Fold]:
    """Return the folds; none if nothing is fitted."""
    if train is not None and folds is not None:
        raise ParameterError("pass train= or folds=, not both")
    if train is not None:
        return list(checked_folds(train, queries, group=group, leaks=leaks, seed=seed))
    if folds is not None:
        return list(checked_folds(queries, folds=folds, group=group, leaks=leaks, seed=seed))
    for name, per_fold in fitted.items():
        if per_fold:
            raise ParameterError(f"{name!r} must be fitted: pass train= or folds=")
    return []


def _evaluate(
    name: str,
    queries: QuerySet,
    measures: Sequence[Measure],
    train: QuerySet | None,
    group: str | None,
    leaks: OnLeak,
    unchecked: set[str],
) -> Entrant:
    entrant = evaluate_entrant(name, queries, measures, train=train, group=group)
    if entrant.origin == "model" and leaks != "warn":
        known = entrant.learned_from(queries)
        if known is None:
            unchecked.add(name)
        elif known.any():
            raise LeakError(
                f"{name}: {known.sum():,} of {len(queries):,} test queries are in this model's training data, "
                f"for example {queries.qid[known][0].item()!r}: test on other queries"
            )
    return entrant
