"""Estimate whether the queries' own models would pay on top of trees: the ladder on folds of the judged queries."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from kinrank.data.queryset import QuerySet
from kinrank.data.trec import run_from_scores
from kinrank.errors import DataError
from kinrank.measure import NDCG, Measure, PairedComparison, compare_paired, evaluate
from kinrank.rankers.kin.ranker import KinRanker
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.base import coefficients
from kinrank.rankers.local.choose import NeighborChoice
from kinrank.study.answer import MIN_GAIN, RUNGS, Answer, reason
from kinrank.study.comparison import Comparison, Entrant, Fittable, compare
from kinrank.study.entrants import evaluate_ranker, fit_and_evaluate, pool_folds, unjudged_in_top, unjudged_share
from kinrank.study.folds import Fold, OnLeak, PooledQueries, checked_folds, inner_folds
from kinrank.study.ladder import answer_of, climb, ladder, missing_trees
from kinrank.study.leaks import LeakReport
from kinrank.study.own_judgments import GlobalModel, HalfKnown, half_known, oracle_scores
from kinrank.study.sweep import sweep_neighbors

ORACLE = "oracle"
ENOUGH = 4000
"""Number of tested queries after which no further fold is measured with trees, by default."""
_LINEAR_ONLY = "Trees were not measured."
_MAX_CHOOSING = 2000  # training queries that are used to choose k and the prior


@dataclass(frozen=True, eq=False)
class Headroom:
    """What each rung of the ladder reaches, and upper bounds.

    Attributes
    ----------
    comparison : Comparison
        The rungs of `kinrank.study.ladder` compared with one linear model, the baseline, on the test queries.
    answer : Answer
        What the rungs say.
    oracle : Entrant
        Each query ranked by the best weights fitted to its own judgments: an unreachable upper bound.
    known : PairedComparison
        Weights from half of a query's judgments compared with one linear model, on the other half; see
        `kinrank.study.own_judgments`.
    choices : tuple of NeighborChoice
        k and prior of the linear models per query, chosen on the training queries, one per fold.
    leaks : tuple of LeakReport
        Leaks, one report per fold.
    clean : PairedComparison or None
        The gain of `answer` on queries without near-duplicates in training; None if no query, or every query, has one.
    unjudged : float or None
        Share of the top 10 candidates of the highest rung that are not judged; None if all known ones are judged.
    n_folds, n_queries : int
        Number of folds and queries, including those that were not measured.
    """

    comparison: Comparison
    answer: Answer
    oracle: Entrant
    known: PairedComparison
    choices: tuple[NeighborChoice, ...]
    leaks: tuple[LeakReport, ...]
    clean: PairedComparison | None
    unjudged: float | None
    n_folds: int
    n_queries: int

    @property
    def measure(self) -> Measure:
        """The measure."""
        return self.comparison.measures[0]

    @property
    def means(self) -> dict[str, float]:
        """Mean of the measure for every rung and the oracle."""
        entrants = (*self.comparison.entrants, self.oracle)
        return {entrant.name: entrant.evaluation[self.measure] for entrant in entrants}

    @property
    def text(self) -> str:
        """The answer and, if the queries' own models do not gain, why."""
        return self.answer.text if self.answer.own_verdict == "gain" else f"{self.answer.text} {reason(self.known)}"


@dataclass(frozen=True, eq=False)
class _Part:
    """Results of one fold."""

    rungs: dict[str, Entrant]
    oracle: Entrant
    known: HalfKnown
    choice: NeighborChoice
    unjudged: float | None


def headroom(
    queries: QuerySet,
    test: QuerySet | None = None,
    *,
    ranker: KinRanker | None = None,
    trees: bool = True,
    folds: int = 5,
    enough: int = ENOUGH,
    group: str | None = None,
    measure: Measure = NDCG @ 10,
    leaks: OnLeak = "refuse",
    candidates: QuerySet | None = None,
    min_gain: float = MIN_GAIN,
    seed: int = 0,
    advance: Callable[[int], None] = lambda _: None,
) -> Headroom:
    """Measure what a model per query gains over one model for all queries, with linear models and on top of trees.

    All rungs of `kinrank.study.ladder` are fitted on the same queries and measured on the same other queries. Shapes,
    numbers of trees, k and prior strength are chosen on the training queries, never on test queries.

    Parameters
    ----------
    queries
        Judged queries.
    test
        Judged test queries; by default `queries` are split into folds and each query is tested once.
    ranker
        The ranker at the top of the ladder; the others share its description and preparation of features. By default
        `KinRanker()`.
    trees
        Whether to measure trees. Without, the answer is about linear models only, and takes seconds. They are left out
        if LightGBM is not installed, or if grades are not whole numbers.
    folds
        Number of folds.
    enough
        Number of tested queries after which no further fold is measured, because trees take minutes.
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
    >>> found = headroom(make_two_camps(n_queries=100, seed=0), trees=False)
    >>> {name: round(mean, 2) for name, mean in found.means.items()}
    {'one linear model': 0.48, 'a linear model per query': 1.0, 'oracle': 1.0}
    >>> found.answer.verdict
    'gain'
    """
    kin: KinRanker = clone(ranker) if ranker is not None else KinRanker()
    if kin.group_column is None:
        kin.set_params(group_column=group)
    note = missing_trees(queries) if trees else _LINEAR_ONLY
    study = _Study(kin, measure, group, seed, tuple(RUNGS) if not note else ("linear", "local"))
    cut: list[Fold] = []
    parts: list[_Part] = []
    for fold in checked_folds(queries, test, folds=folds, group=group, leaks=leaks, seed=seed):
        if note or sum(len(each.test) for each in cut) < enough:
            parts.append(study.part(fold, candidates))
            cut.append(fold)
        advance(1)
    tested = PooledQueries.of(cut, queries if test is None else test)
    rungs = {
        rung: _pooled(RUNGS[rung], [part.rungs[rung] for part in parts], tested, measure) for rung in parts[0].rungs
    }
    found = answer_of(rungs, measure, min_gain=min_gain, note=note)
    assert found is not None  # both linear rungs are always measured
    top = list(rungs.values())[-1]
    shares = [part.unjudged for part in parts if part.unjudged is not None]
    return Headroom(
        comparison=compare(tested.queries, list(rungs.values())),
        answer=found,
        oracle=_pooled(ORACLE, [part.oracle for part in parts], tested, measure),
        known=compare_paired(
            np.concatenate([part.known.own for part in parts]), np.concatenate([part.known.single for part in parts])
        ),
        choices=tuple(part.choice for part in parts),
        leaks=tuple(fold.leaks for fold in cut),
        clean=_clean(rungs, found, measure, tested.near),
        unjudged=float(np.mean(shares)) if shares else unjudged_in_top(tested.queries, top.scores),
        n_folds=folds if test is None else 1,
        n_queries=len(queries if test is None else test),
    )


@dataclass(frozen=True)
class _Study:
    kin: KinRanker
    measure: Measure
    group: str | None
    seed: int
    rungs: Sequence[str]

    def part(self, fold: Fold, candidates: QuerySet | None) -> _Part:
        """Measure the rungs and the upper bounds on one fold."""
        train, test = fold.train, fold.test
        made = ladder(self.kin)
        start = time.perf_counter()
        template = cast(KnnRanker, made["local"]())
        choice = sweep_neighbors(
            template, inner_folds(train, group=self.group, seed=self.seed), self.measure, enough=_MAX_CHOOSING
        )
        knn = choice.apply(template).fit(train)
        seconds = time.perf_counter() - start
        local = replace(evaluate_ranker(RUNGS["local"], knn, test, [self.measure]), fit_seconds=seconds)
        linear = fit_and_evaluate(RUNGS["linear"], made["linear"](), train, test, [self.measure])
        rungs = climb(self.kin, train, test, self.measure, rungs=self.rungs, known={"linear": linear, "local": local})
        model = GlobalModel(coefficients(knn.global_), knn.learner_.penalty)
        prepared_train, prepared_test = knn.preparer_.apply(train), knn.preparer_.apply(test)
        best = oracle_scores(model, prepared_test, self.measure)
        top = list(rungs.values())[-1].ranker
        return _Part(
            rungs=rungs,
            oracle=Entrant(ORACLE, "oracle", best, evaluate(test, best, [self.measure])),
            known=half_known(model, prepared_train, prepared_test, self.measure, self.seed),
            choice=choice,
            unjudged=None if candidates is None or top is None else _unjudged(top, test, candidates),
        )


def _pooled(name: str, parts: Sequence[Entrant], tested: PooledQueries, measure: Measure) -> Entrant:
    return parts[0] if len(parts) == 1 else pool_folds(name, parts, tested.queries, tested.rows, [measure])


def _clean(
    rungs: dict[str, Entrant], found: Answer, measure: Measure, near: NDArray[np.bool_]
) -> PairedComparison | None:
    if not near.any() or near.sum() > len(near) - 2:
        return None
    by_name = {entrant.name: entrant.per_query(measure)[~near] for entrant in rungs.values()}
    return compare_paired(by_name[found.gain.name], by_name[found.gain.against])


def _unjudged(ranker: Fittable, test: QuerySet, candidates: QuerySet) -> float:
    offered = candidates[np.isin(candidates.qid, test.qid)]
    if not len(offered):
        raise DataError("candidates contains none of the test queries: check that query ids match")
    return unjudged_share(test, run_from_scores(offered, ranker.predict(offered)))
