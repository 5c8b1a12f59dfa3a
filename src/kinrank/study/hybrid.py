"""Compare ways to weight the scores of a hybrid search: one set of weights for all queries, or one per query."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from sklearn.base import clone

from kinrank.arrays import Float64
from kinrank.data.normalization import normalization_of
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, has_text
from kinrank.data.vectors import VECTORS
from kinrank.describe.encoders import make_encoder
from kinrank.errors import DataError
from kinrank.learn.prepare import Scale
from kinrank.learn.rankrls import RankRLS
from kinrank.measure import NDCG, Measure, PairedComparison, evaluate, holm
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.choose import NeighborChoice
from kinrank.rankers.single import SingleRanker
from kinrank.study.comparison import Comparison, Entrant, Origin, compare
from kinrank.study.entrants import evaluate_ranker, pool_folds
from kinrank.study.folds import Fold, OnLeak, PooledQueries, checked_folds, inner_folds
from kinrank.study.fusion import (
    MEANS,
    NORMALIZED,
    RAW,
    RRF,
    Fusion,
    GlobalWeights,
    best_weights,
    oracle_scores,
)
from kinrank.study.leaks import LeakReport
from kinrank.study.sweep import subsample, sweep_neighbors

BEST, PLAIN_RRF, WEIGHTED_RRF, ORACLE = "best global weights", "RRF", "weighted RRF", "oracle"
Basis = Literal["text", "candidates"]
PER_QUERY: dict[Basis, str] = {
    "text": "per query, from the text",
    "candidates": "per query, from text and candidates",
}
Choice = Literal["auto", "none", "min_max", "l2", "z_score"]

ALPHA = 0.05
"""Level of significance for keeping weights per query."""

_NEIGHBORS = (10, 25, 50, 100, 200, 400)
_PRIORS = (0.1, 1.0)
_MAX_CHOOSING = 2000  # training queries that are used to choose weights, k and the prior


@dataclass(frozen=True, eq=False)
class Hybrid:
    """How well each way of weighting scores ranks.

    Attributes
    ----------
    comparison : Comparison
        Every score alone, rank fusion, the best global weights for each normalization, and weights per query, compared
        with the best global weights of all that the engine can use, which are chosen on training queries.
    oracle : Entrant
        Each query ranked by the best weights for its own judgments: an unreachable upper bound.
    best : tuple of GlobalWeights
        The best global weights, one per fold.
    per_query : mapping of str to tuple of PerQuery
        The rankers with weights per query, by basis, one per fold.
    leaks : tuple of LeakReport
        Leaks, one report per fold.
    """

    comparison: Comparison
    oracle: Entrant
    best: tuple[GlobalWeights, ...]
    per_query: dict[Basis, tuple[PerQuery, ...]]
    leaks: tuple[LeakReport, ...]

    @property
    def measure(self) -> Measure:
        """The measure."""
        return self.comparison.measures[0]

    def gain(self, basis: Basis) -> PairedComparison:
        """Return the gain of the weights per query over the best global weights."""
        return self.comparison.difference(PER_QUERY[basis], self.measure).paired

    def p(self, basis: Basis) -> float:
        """Return the p-value of `gain`, Holm-corrected for the ways to predict weights per query.

        The other rows of the comparison describe what is usual; no claim rests on them.
        """
        corrected = holm([self.gain(each).p for each in self.per_query])
        return float(corrected[list(self.per_query).index(basis)])

    def gains(self, basis: Basis) -> bool:
        """Return whether the weights per query are significantly better than the best global weights."""
        return self.p(basis) < ALPHA and self.gain(basis).mean_difference > 0


@dataclass(frozen=True)
class HybridPlan:
    """How weights are chosen and measured.

    Attributes
    ----------
    normalization : {"auto", "none", "min_max", "l2", "z_score"}
        Normalization that your engine has, for the weights per query, the best global weights and the oracle.
        ``"auto"`` is the best on training queries.
    ranker : KnnRanker
        Encoder of query texts; everything else is set by the study.
    group : str, optional
        Query column whose values are never split across folds.
    measure : Measure
        The measure.
    seed : int
        Seed for the folds.
    """

    normalization: Choice = "auto"
    ranker: KnnRanker = field(default_factory=KnnRanker)
    group: str | None = None
    measure: Measure = NDCG @ 10
    seed: int = 0

    def global_weights(self, train: QuerySet) -> dict[str, GlobalWeights]:
        """Return the best weights of every fusion by name."""
        some = subsample(train, _MAX_CHOOSING)
        return {each.name: best_weights(each, some, self.measure) for each in (RRF, RAW, *NORMALIZED, *MEANS)}

    def best(self, found: dict[str, GlobalWeights]) -> GlobalWeights:
        """Return the best of the global weights that the engine can use: by rank, or in its normalization."""
        usable = [each for each in found.values() if self.normalization in ("auto", each.fusion.normalization)]
        return max((found[RRF.name], *usable), key=lambda each: each.quality)

    def best_fusion(self, found: dict[str, GlobalWeights]) -> Fusion:
        """Return the weighted sum that is best with the same weights for all queries."""
        return max((found[each.name] for each in self._fusions), key=lambda each: each.quality).fusion

    def per_query(self, train: QuerySet, basis: Basis) -> PerQuery:
        """Fit nonnegative weights per query; normalization, k and prior are chosen on folds of the training queries."""
        template = self._template(train, basis)
        tried = []
        for fusion in self._fusions:
            ranker: KnnRanker = clone(template).set_params(scale=scale_of(fusion))
            parts = inner_folds(train, group=self.group, seed=self.seed)
            choice = sweep_neighbors(
                ranker, parts, self.measure, counts=_NEIGHBORS, strengths=_PRIORS, enough=_MAX_CHOOSING
            )
            tried.append(PerQuery(choice.apply(ranker), fusion, choice))
        best = max(tried, key=lambda each: each.choice.quality[each.choice.n_neighbors, each.choice.prior_strength])
        best.ranker.fit(train)
        return best

    @property
    def _fusions(self) -> tuple[Fusion, ...]:
        return (RAW, *NORMALIZED) if self.normalization == "auto" else (Fusion(self.normalization),)

    def _template(self, train: QuerySet, basis: Basis) -> KnnRanker:
        """Return the unfitted ranker. Its encoder is fitted once, to all training texts: they say nothing of grades."""
        ranker: KnnRanker = clone(self.ranker)
        if ranker.encoder is not None and TEXT in train.query_columns and VECTORS not in train.query_columns:
            encoder = make_encoder(ranker.encoder)
            if not encoder.is_fitted:
                encoder.fit(train.query_columns[TEXT].tolist())
            ranker.set_params(encoder=encoder)
        described = "text" if basis == "text" else "auto"
        changed: KnnRanker = ranker.set_params(learner=RankRLS(nonnegative=True), describe=described, missing="zero")
        return changed


@dataclass(frozen=True, eq=False)
class PerQuery:
    """A ranker with weights per query, and what was chosen for it."""

    ranker: KnnRanker
    fusion: Fusion
    choice: NeighborChoice


def hybrid(
    queries: QuerySet,
    test: QuerySet | None = None,
    *,
    plan: HybridPlan | None = None,
    folds: int = 5,
    leaks: OnLeak = "refuse",
    advance: Callable[[int], None] = lambda _: None,
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
    advance
        Called with 1 after every fold.

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
    cut, parts = [], []
    for fold in checked_folds(queries, test, folds=folds, group=chosen.group, leaks=leaks, seed=chosen.seed):
        parts.append(_part(chosen, fold))
        cut.append(fold)
        advance(1)
    tested = PooledQueries.of(cut, queries if test is None else test)
    pooled = [
        _pool(entrants, tested, chosen.measure) for entrants in zip(*(part.entrants for part in parts), strict=True)
    ]
    return Hybrid(
        comparison=compare(tested.queries, pooled[:-1], baseline=BEST),
        oracle=pooled[-1],
        best=tuple(part.best for part in parts),
        per_query={basis: tuple(part.per_query[basis] for part in parts) for basis in parts[0].per_query},
        leaks=tuple(fold.leaks for fold in cut),
    )


def bases_of(queries: QuerySet) -> tuple[Basis, ...]:
    """Return what weights per query can be predicted from: the text only if the queries have texts or vectors."""
    return ("text", "candidates") if has_text(queries) else ("candidates",)


def scale_of(fusion: Fusion) -> Scale:
    """Return the `scale` of a ranker that weights the same values as a weighted sum."""
    return normalization_of(fusion.normalization) or "standard"


def global_ranker(train: QuerySet, found: GlobalWeights) -> SingleRanker:
    """Return the best global weights as a ranker, to save where weights per query gain nothing."""
    ranker = SingleRanker(RankRLS(nonnegative=True), scale=scale_of(found.fusion), missing="zero").fit(train)
    ranker.learner_ = ranker.learner_.with_weights(found.weights / ranker.preparer_.factor_)
    return ranker


@dataclass(frozen=True, eq=False)
class _Part:
    """Results of one fold; the last entrant is the oracle."""

    entrants: list[Entrant]
    best: GlobalWeights
    per_query: dict[Basis, PerQuery]


def _part(plan: HybridPlan, fold: Fold) -> _Part:
    train, test = fold.train, fold.test
    found = plan.global_weights(train)
    best = plan.best(found)
    entrants = [
        _entrant(BEST, best.predict(test), test, plan.measure),
        *(_entrant(name, scores, test, plan.measure) for name, scores in _alone(test)),
        _entrant(PLAIN_RRF, RRF.values(test).sum(axis=1), test, plan.measure),
        _entrant(WEIGHTED_RRF, found[RRF.name].predict(test), test, plan.measure),
        *(
            _entrant(f"global: {name}", each.predict(test), test, plan.measure)
            for name, each in found.items()
            if name != RRF.name
        ),
    ]
    learned: dict[Basis, PerQuery] = {}
    for basis in bases_of(train):
        start = time.perf_counter()
        learned[basis] = plan.per_query(train, basis)
        seconds = time.perf_counter() - start
        measured = evaluate_ranker(PER_QUERY[basis], learned[basis].ranker, test, [plan.measure])
        entrants.append(replace(measured, fit_seconds=seconds))
    scores = oracle_scores(plan.best_fusion(found), test, plan.measure)
    entrants.append(_entrant(ORACLE, scores, test, plan.measure))
    return _Part(entrants, best, learned)


def _alone(queries: QuerySet) -> Iterator[tuple[str, Float64]]:
    """Yield each score alone; a document that was not found is ranked last."""
    lowest = np.nanmin(np.where(np.isfinite(queries.X), queries.X, np.nan), axis=0)
    for name, column, low in zip(queries.feature_names, queries.X.T, lowest, strict=True):
        yield name, np.where(np.isnan(column), low - 1.0, column).astype(np.float64)


def _entrant(name: str, scores: Float64, queries: QuerySet, measure: Measure) -> Entrant:
    origin: Origin = "oracle" if name == ORACLE else "ranker"
    return Entrant(name, origin, scores, evaluate(queries, scores, [measure]))


def _pool(parts: tuple[Entrant, ...], tested: PooledQueries, measure: Measure) -> Entrant:
    if len(parts) == 1:
        return parts[0]
    return pool_folds(parts[0].name, parts, tested.queries, tested.rows, [measure])
