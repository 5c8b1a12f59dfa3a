"""Any rankers, models and runs on one judged test set, or on folds of one set, behind the leak guard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kinrank.data.queryset import QuerySet
from kinrank.errors import LeakError, ParameterError
from kinrank.measure import NDCG, Measure
from kinrank.study.comparison import Comparison, Entrant, Pairs, compare
from kinrank.study.entrants import enter, origin_of, pooled_entrant
from kinrank.study.folds import Fold, Gathered, OnLeak, guarded_folds
from kinrank.study.leaks import LeakReport


@dataclass(frozen=True, eq=False)
class Contest:
    """A comparison, and what the leak guard found before it.

    Attributes
    ----------
    comparison : Comparison
        What was compared.
    leaks : tuple of LeakReport
        One per fold; none without training queries.
    unchecked : tuple of str
        Models that do not know which queries they were learnt from.
    """

    comparison: Comparison
    leaks: tuple[LeakReport, ...]
    unchecked: tuple[str, ...] = ()


def contest(
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
) -> Contest:
    """Fit what must be fitted, rank, measure and compare.

    Parameters
    ----------
    names
        Rankers with settings, other libraries, model folders, run files; see `kinrank.study.entrants.enter`.
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
    >>> found = contest(["single", "knn(n_neighbors=5)"], make_two_camps(n_queries=60, seed=0), folds=3)
    >>> [round(entrant.evaluation[NDCG @ 10], 2) for entrant in found.comparison.entrants]
    [0.41, 1.0]
    """
    unchecked: set[str] = set()
    origins = {name: origin_of(name) for name in names}  # a name that is none is refused before any work
    if train is not None and folds is not None:
        raise ParameterError("training queries and folds both given: pass one of them")
    if train is None and folds is None:
        for name, origin in origins.items():
            if origin in ("ranker", "peer"):
                raise ParameterError(
                    f"{name!r} must be fitted: give training queries (--train), or a number of folds (--folds)"
                )
        entrants = [_entered(name, queries, measures, None, None, leaks, unchecked, advance) for name in origins]
        return Contest(compare(queries, entrants, baseline=baseline, pairs=pairs), (), tuple(sorted(unchecked)))
    source = queries if train is None else train
    asked = None if train is None else queries
    cut = list(guarded_folds(source, asked, folds=folds or 2, group=group, leaks=leaks, seed=seed))
    tested = Gathered.of(cut, queries)
    entrants = []
    for name in origins:
        parts = [_entered(name, fold.test, measures, fold, group, leaks, unchecked, advance) for fold in cut]
        entrants.append(
            parts[0] if len(parts) == 1 else pooled_entrant(name, parts, tested.queries, tested.rows, measures)
        )
    comparison = compare(tested.queries, entrants, baseline=baseline, pairs=pairs)
    return Contest(comparison, tuple(fold.leaks for fold in cut), tuple(sorted(unchecked)))


def _entered(
    name: str,
    queries: QuerySet,
    measures: Sequence[Measure],
    fold: Fold | None,
    group: str | None,
    leaks: OnLeak,
    unchecked: set[str],
    advance: Callable[[int], None],
) -> Entrant:
    entrant = enter(name, queries, measures, train=None if fold is None else fold.train, group=group)
    if entrant.origin == "model" and leaks != "warn":
        known = entrant.learnt_from(queries)
        if known is None:
            unchecked.add(name)
        elif known.any():
            raise LeakError(
                f"{name}: {known.sum():,} of {len(queries):,} test queries are among those this model was learnt from, "
                f"for example {queries.qid[known][0].item()!r}: test on others"
            )
    advance(1)
    return entrant
