"""Any rankers, models and runs on one judged test set, or on folds of one set, behind the leak guard."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from kinrank.data.queryset import QuerySet
from kinrank.errors import LeakError, ParameterError
from kinrank.measure import NDCG, Measure
from kinrank.study.comparison import Comparison, Entrant, Origin, Pairs, compare
from kinrank.study.entrants import evaluate_entrant, origin_of, pool_folds
from kinrank.study.folds import Fold, OnLeak, PooledQueries, checked_folds
from kinrank.study.leaks import LeakReport

FITTED_HERE: tuple[Origin, ...] = ("ranker", "peer")


@dataclass(frozen=True, eq=False)
class Experiment:
    """A comparison, and what the leak guard found before it.

    Attributes
    ----------
    comparison : Comparison
        What was compared.
    leaks : tuple of LeakReport
        One per fold; none without training queries.
    unchecked : tuple of str
        Models that do not know which queries they were learned from.
    """

    comparison: Comparison
    leaks: tuple[LeakReport, ...]
    unchecked: tuple[str, ...] = ()


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
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> Experiment:
    """Fit what must be fitted, rank, measure and compare.

    Parameters
    ----------
    names
        Rankers with settings, other libraries, model folders, run files; see `kinrank.study.entrants.evaluate_entrant`.
    queries
        The judged queries to test on.
    train
        What rankers learn from.
    folds
        Instead of `train`: cut `queries` into so many folds; every query is ranked by models that did not see it.
    group
        The query column that folds, and validation parts that other libraries need, keep together.
    measures, baseline, pairs
        As in `kinrank.study.comparison.compare`.
    leaks
        What becomes of test queries that were seen in training: an error, left out, or kept.
    seed
        Of the folds.
    advance
        Told 1 after every entrant of every fold.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> found = run_experiment(["single", "knn(n_neighbors=5)"], make_two_camps(n_queries=60, seed=0), folds=3)
    >>> [round(entrant.evaluation[NDCG @ 10], 2) for entrant in found.comparison.entrants]
    [0.41, 1.0]
    """
    unchecked: set[str] = set()
    origins = {name: origin_of(name) for name in names}  # a name that is none is refused before any work
    cut = _cut(origins, queries, train, folds, group, leaks, seed)
    tested = PooledQueries.of(cut, queries)
    entrants = []
    for name, origin in origins.items():
        # What was made elsewhere is the same in every fold: it is asked once, about all queries.
        asked = [(fold.test, fold.train) for fold in cut] if origin in FITTED_HERE else [(tested.queries, None)]
        parts = []
        for test, known in asked:
            parts.append(_evaluate(name, test, measures, known, group, leaks, unchecked))
            advance(max(1, len(cut)) // len(asked))
        entrants.append(parts[0] if len(parts) == 1 else pool_folds(name, parts, tested.queries, tested.rows, measures))
    comparison = compare(tested.queries, entrants, baseline=baseline, pairs=pairs)
    return Experiment(comparison, tuple(fold.leaks for fold in cut), tuple(sorted(unchecked)))


def _cut(
    origins: Mapping[str, Origin],
    queries: QuerySet,
    train: QuerySet | None,
    folds: int | None,
    group: str | None,
    leaks: OnLeak,
    seed: int,
) -> list[Fold]:
    """What to learn from and to test on; nothing where nothing is learned."""
    if train is not None and folds is not None:
        raise ParameterError("training queries and folds both given: pass one of them")
    if train is not None:
        return list(checked_folds(train, queries, group=group, leaks=leaks, seed=seed))
    if folds is not None:
        return list(checked_folds(queries, folds=folds, group=group, leaks=leaks, seed=seed))
    for name, origin in origins.items():
        if origin in FITTED_HERE:
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
                f"for example {queries.qid[known][0].item()!r}: test on others"
            )
    return entrant
