"""Estimate whether a model per query ranks better than one model for all queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.data.queryset import QuerySet
from kinrank.data.trec import run_from_scores
from kinrank.errors import DataError
from kinrank.measure import NDCG, Measure, PairedComparison, compare_paired, evaluate
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.base import coefficients
from kinrank.rankers.local.choose import NeighborChoice
from kinrank.rankers.single import SingleRanker
from kinrank.study.advice import MIN_GAIN, Advice, advise
from kinrank.study.comparison import Comparison, Difference, Entrant, compare
from kinrank.study.entrants import evaluate_ranker, fit_and_evaluate, pool_folds, unjudged_in_top, unjudged_share
from kinrank.study.folds import Fold, OnLeak, PooledQueries, checked_folds, inner_folds
from kinrank.study.leaks import LeakReport
from kinrank.study.own_judgments import GlobalModel, HalfKnown, half_known, oracle_scores
from kinrank.study.sweep import sweep_neighbors

SINGLE, KNN, ORACLE = "Single", "KNN", "oracle"
_MAX_CHOOSING = 2000  # training queries that are used to choose k and the prior


@dataclass(frozen=True, eq=False)
class Headroom:
    """Gain of a model per query over one model for all queries, and upper bounds.

    Attributes
    ----------
    comparison : Comparison
        KNN compared with Single, the baseline, on the test queries.
    oracle : Entrant
        Each query ranked by the best weights fitted to its own judgments: an unreachable upper bound.
    known : PairedComparison
        Weights from half of a query's judgments compared with Single, on the other half; see
        `kinrank.study.own_judgments`.
    choices : tuple of NeighborChoice
        k and prior, chosen on the training queries, one per fold.
    leaks : tuple of LeakReport
        Leaks, one report per fold.
    clean : PairedComparison or None
        The gain on queries without near-duplicates in training; None if no query, or every query, has one.
    unjudged : float or None
        Share of KNN's top 10 candidates that are not judged; None if all known candidates are judged.
    advice : Advice
        Verdict and advice.
    """

    comparison: Comparison
    oracle: Entrant
    known: PairedComparison
    choices: tuple[NeighborChoice, ...]
    leaks: tuple[LeakReport, ...]
    clean: PairedComparison | None
    unjudged: float | None
    advice: Advice

    @property
    def measure(self) -> Measure:
        """The measure."""
        return self.comparison.measures[0]

    @property
    def gain(self) -> Difference:
        """KNN compared with Single."""
        return self.comparison.differences[0]

    @property
    def means(self) -> dict[str, float]:
        """Mean of the measure for Single, KNN and the oracle."""
        entrants = (*self.comparison.entrants, self.oracle)
        return {entrant.name: entrant.evaluation[self.measure] for entrant in entrants}


@dataclass(frozen=True, eq=False)
class _Part:
    """Results of one fold."""

    single: Entrant
    knn: Entrant
    oracle: Entrant
    known: HalfKnown
    choice: NeighborChoice
    unjudged: float | None


def headroom(
    queries: QuerySet,
    test: QuerySet | None = None,
    *,
    ranker: KnnRanker | None = None,
    folds: int = 5,
    group: str | None = None,
    measure: Measure = NDCG @ 10,
    leaks: OnLeak = "refuse",
    candidates: QuerySet | None = None,
    min_gain: float = MIN_GAIN,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> Headroom:
    """Measure the gain of a model per query over one model for all queries.

    Both are linear and learned by RankRLS, so that they differ only in the number of models. k and the prior strength
    are chosen on folds of the training queries, never on test queries.

    Parameters
    ----------
    queries
        Judged queries.
    test
        Judged test queries; by default `queries` are split into folds and each query is tested once.
    ranker
        Description of queries and preparation of features; by default `KnnRanker()`. Its k and prior are ignored.
    folds
        Number of folds.
    group
        Query column whose values are never split across folds.
    measure
        The measure.
    leaks
        What to do with test queries seen in training: raise, drop them, or keep them.
    candidates
        All candidates of the test queries, judged or not, with document ids, to count unjudged top candidates if the
        test queries have judged ones only.
    min_gain
        Smallest gain that is worth having.
    seed
        Seed for folds and halves.
    advance
        Called with 1 after every fold.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> found = headroom(make_two_camps(n_queries=100, seed=0))
    >>> {name: round(mean, 2) for name, mean in found.means.items()}
    {'Single': 0.48, 'KNN': 1.0, 'oracle': 1.0}
    >>> found.advice.verdict
    'gain'
    """
    template = ranker or KnnRanker()
    cut, parts = [], []
    for fold in checked_folds(queries, test, folds=folds, group=group, leaks=leaks, seed=seed):
        parts.append(_Study(template, measure, group, seed).part(fold, candidates))
        cut.append(fold)
        advance(1)
    return _pool(PooledQueries.of(cut, queries if test is None else test), cut, parts, min_gain)


@dataclass(frozen=True)
class _Study:
    template: KnnRanker
    measure: Measure
    group: str | None
    seed: int

    def part(self, fold: Fold, candidates: QuerySet | None) -> _Part:
        """Evaluate Single, KNN and the upper bounds on one fold."""
        train, test = fold.train, fold.test
        start = time.perf_counter()
        knn, choice = self._local(train)
        seconds = time.perf_counter() - start
        own = knn.get_params(deep=False)
        single = SingleRanker(knn.learner, scale=own["scale"], missing=own["missing"])
        single_entrant = fit_and_evaluate(SINGLE, single, train, test, [self.measure])
        model = GlobalModel(coefficients(knn.global_), knn.learner_.penalty)
        prepared_train, prepared_test = knn.preparer_.apply(train), knn.preparer_.apply(test)
        best = oracle_scores(model, prepared_test, self.measure)
        return _Part(
            single=single_entrant,
            knn=replace(evaluate_ranker(KNN, knn, test, [self.measure]), fit_seconds=seconds),
            oracle=Entrant(ORACLE, "oracle", best, evaluate(test, best, [self.measure])),
            known=half_known(model, prepared_train, prepared_test, self.measure, self.seed),
            choice=choice,
            unjudged=None if candidates is None else _unjudged(knn, test, candidates),
        )

    def _local(self, train: QuerySet) -> tuple[KnnRanker, NeighborChoice]:
        """Fit the ranker, with k and prior chosen on folds of the training queries."""
        choice = sweep_neighbors(
            self.template, inner_folds(train, group=self.group, seed=self.seed), self.measure, enough=_MAX_CHOOSING
        )
        return choice.apply(clone(self.template)).fit(train), choice


def _pool(tested: PooledQueries, folds: Sequence[Fold], parts: Sequence[_Part], min_gain: float) -> Headroom:
    measure = next(iter(parts[0].single.evaluation.per_query))
    entrants = {
        name: each[0] if len(each) == 1 else pool_folds(name, each, tested.queries, tested.rows, [measure])
        for name, each in (
            (SINGLE, [part.single for part in parts]),
            (KNN, [part.knn for part in parts]),
            (ORACLE, [part.oracle for part in parts]),
        )
    }
    comparison = compare(tested.queries, [entrants[SINGLE], entrants[KNN]])
    known = compare_paired(
        np.concatenate([part.known.own for part in parts]), np.concatenate([part.known.single for part in parts])
    )
    shares = [part.unjudged for part in parts if part.unjudged is not None]
    return Headroom(
        comparison=comparison,
        oracle=entrants[ORACLE],
        known=known,
        choices=tuple(part.choice for part in parts),
        leaks=tuple(fold.leaks for fold in folds),
        clean=_clean(entrants, measure, tested.near),
        unjudged=float(np.mean(shares)) if shares else unjudged_in_top(tested.queries, entrants[KNN].scores),
        advice=advise(comparison.differences[0].paired, known, min_gain),
    )


def _clean(entrants: dict[str, Entrant], measure: Measure, near: NDArray[np.bool_]) -> PairedComparison | None:
    if not near.any() or near.sum() > len(near) - 2:
        return None
    knn, single = (entrants[name].per_query(measure)[~near] for name in (KNN, SINGLE))
    return compare_paired(knn, single)


def _unjudged(ranker: KnnRanker, test: QuerySet, candidates: QuerySet) -> float:
    offered = candidates[np.isin(candidates.qid, test.qid)]
    if not len(offered):
        raise DataError("candidates contains none of the test queries: check that query ids match")
    return unjudged_share(test, run_from_scores(offered, ranker.predict(offered)))
