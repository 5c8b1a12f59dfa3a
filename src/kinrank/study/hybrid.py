"""Compare ways to weight the scores of a hybrid search: one set of weights for all queries, or one per query."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.measure import Measure, PairedComparison, compare_paired, evaluate
from kinrank.progress import Parts
from kinrank.study.answer import LEVEL, Claim, together
from kinrank.study.comparison import Comparison, Difference, Entrant, Origin
from kinrank.study.entrants import evaluate_ranker
from kinrank.study.folds import Fold, OnLeak
from kinrank.study.fusion import RRF, GlobalWeights, scores_by_own_weights
from kinrank.study.hybrid_plan import Basis, HybridPlan, PerQuery, bases_of
from kinrank.study.leaks import LeakReport
from kinrank.study.study import Study

BEST, PLAIN_RRF, WEIGHTED_RRF, ORACLE = "best global weights", "RRF", "weighted RRF", "oracle"
LEARNED = "global: learned"
PER_QUERY: dict[Basis, str] = {
    "text": "per query, from the text",
    "candidates": "per query, from text and candidates",
}


@dataclass(frozen=True, eq=False)
class Hybrid:
    """How well each way of weighting scores ranks."""

    comparison: Comparison
    """Every score alone, rank fusion, the best global weights for each normalization, and weights per query, compared
    with the best global weights of all that the engine can use, which are chosen on training queries.
    """
    oracle: Entrant
    """Each query ranked by the best weights for its own judgments: an unreachable upper bound."""
    best: tuple[GlobalWeights, ...]
    """The best global weights, one per fold."""
    per_query: dict[Basis, tuple[PerQuery, ...]]
    """The rankers with weights per query, by basis, one per fold."""
    over_learned: dict[Basis, PairedComparison]
    """Gains of the weights per query over the control, by basis: one set of weights that the same learner learns from
    all training queries. What is left of a gain is due to weights per query, and not to the learner.
    """
    leaks: tuple[LeakReport, ...]
    """Leaks, one report per fold."""

    @property
    def measure(self) -> Measure:
        """The measure."""
        return self.comparison.measures[0]

    @property
    def best_alone(self) -> Difference:
        """The best search alone, compared with the best global weights."""
        names = self.comparison.queries.feature_names
        best = max(names, key=lambda name: self.comparison[name].evaluation[self.measure])
        return self.comparison.difference(best, self.measure)

    @property
    def one_search_is_enough(self) -> bool:
        """Whether no mixture, global or per query, is significantly better than the best search alone."""
        worse = self.best_alone.paired.p <= LEVEL and self.best_alone.paired.mean_difference < 0
        return not worse and not any(self.claim(basis).verdict == "gain" for basis in self.per_query)

    def claim(self, basis: Basis) -> Claim:
        """Return the gain of the weights per query over the best global weights.

        Holm's correction covers the ways to predict weights per query. The other rows of the comparison describe what
        is usual; no claim rests on them.
        """
        names = [PER_QUERY[way] for way in self.per_query]
        pairs = [self.comparison.difference(name, self.measure).paired for name in names]
        claims = together(
            [Claim(f"weighting {name},", f"the {BEST}", paired) for name, paired in zip(names, pairs, strict=True)]
        )
        return claims[list(self.per_query).index(basis)]


def hybrid(
    queries: QuerySet,
    test: QuerySet | None = None,
    *,
    plan: HybridPlan | None = None,
    folds: int = 5,
    leaks: OnLeak = "refuse",
) -> Hybrid:
    """Compare ways to weight the scores of a hybrid search.

    Weights, normalization, k and prior are chosen on training queries only.

    Parameters
    ----------
    queries
        Judged queries whose features are the scores of the searches. NaN: the search did not return the document.
    test
        Judged test queries; by default `queries` are split into folds and each query is tested once.
    plan
        How weights are chosen and measured.
    folds
        Number of folds.
    leaks
        What to do with test queries seen in training: raise, drop them, or keep them.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=100, seed=0)
    >>> found = hybrid(camps.replace(X=np.abs(camps.X)), folds=2)
    >>> found.comparison.baseline.name
    'best global weights'
    """
    if queries.n_features < 2:
        raise DataError(f"a hybrid search has two or more scores, got {', '.join(queries.feature_names)}")
    chosen = plan or HybridPlan()
    study = Study.split(
        queries,
        test,
        folds=folds,
        group=chosen.group,
        measures=[chosen.measure],
        leaks=leaks,
        seed=chosen.seed,
    )
    progress = Parts(len(study.folds) * (1 + len(bases_of(queries))))
    parts = [_part(chosen, fold, study.label(number, ""), progress) for number, fold in enumerate(study.folds)]
    *entrants, oracle = (study.pool(of_folds) for of_folds in zip(*(part.entrants for part in parts), strict=True))
    comparison = study.compare(entrants, BEST)

    def values(name: str) -> Float64:
        return comparison[name].per_query(chosen.measure)

    return Hybrid(
        comparison=comparison,
        oracle=oracle,
        best=tuple(part.best for part in parts),
        per_query={basis: tuple(part.per_query[basis] for part in parts) for basis in parts[0].per_query},
        over_learned={
            basis: compare_paired(values(PER_QUERY[basis]), values(LEARNED), groups=study.groups)
            for basis in parts[0].per_query
        },
        leaks=study.reports,
    )


@dataclass(frozen=True, eq=False)
class _Part:
    """Results of one fold; the last entrant is the oracle."""

    entrants: list[Entrant]
    best: GlobalWeights
    per_query: dict[Basis, PerQuery]


def _part(plan: HybridPlan, fold: Fold, name: str, progress: Parts) -> _Part:
    train, test = fold.train, fold.test
    with progress.part(f"{name}global weights"):
        found = plan.global_weights(train)
        scores = scores_by_own_weights(plan.best_fusion(found), test, plan.measure)
    best = plan.best(found)
    entrants = [
        _entrant(BEST, best.predict(test), test, plan.measure),
        *(_entrant(name, alone, test, plan.measure) for name, alone in _alone(test)),
        _entrant(PLAIN_RRF, RRF.values(test).sum(axis=1), test, plan.measure),
        _entrant(WEIGHTED_RRF, found[RRF.name].predict(test), test, plan.measure),
        *(
            _entrant(f"global: {name}", each.predict(test), test, plan.measure)
            for name, each in found.items()
            if name != RRF.name
        ),
        evaluate_ranker(LEARNED, plan.learned(train), test, [plan.measure]),
    ]
    learned: dict[Basis, PerQuery] = {}
    for basis in bases_of(train):
        start = time.perf_counter()
        with progress.part(f"{name}{PER_QUERY[basis]}"):
            learned[basis] = plan.per_query(train, basis)
        seconds = time.perf_counter() - start
        measured = evaluate_ranker(PER_QUERY[basis], learned[basis].ranker, test, [plan.measure])
        entrants.append(replace(measured, fit_seconds=seconds))
    entrants.append(_entrant(ORACLE, scores, test, plan.measure))
    return _Part(entrants, best, learned)


def _alone(queries: QuerySet) -> Iterator[tuple[str, Float64]]:
    """Yield each score alone; a document that was not found is ranked last."""
    lowest = np.min(np.where(np.isfinite(queries.X), queries.X, 0.0), axis=0)
    for name, column, low in zip(queries.feature_names, queries.X.T, lowest, strict=True):
        yield name, np.where(np.isnan(column), low - 1.0, column).astype(np.float64)


def _entrant(name: str, scores: Float64, queries: QuerySet, measure: Measure) -> Entrant:
    origin: Origin = "oracle" if name == ORACLE else "ranker"
    return Entrant(name, origin, scores, evaluate(queries, scores, [measure]))
