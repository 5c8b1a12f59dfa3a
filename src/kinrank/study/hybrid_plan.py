"""How the weights of a hybrid search are chosen: the best global ones, one learned set, or one set per query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from sklearn.base import clone

from kinrank.data.normalization import normalization_of
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, has_text
from kinrank.data.vectors import VECTORS
from kinrank.describe.encoders import make_encoder
from kinrank.learn.prepare import Scale
from kinrank.learn.rankrls import RankRLS
from kinrank.measure import NDCG, Measure
from kinrank.measure.base import mean_of
from kinrank.progress import report_progress
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.choose import NeighborChoice
from kinrank.rankers.single import SingleRanker
from kinrank.study.folds import inner_folds
from kinrank.study.fusion import MEANS, NORMALIZED, RAW, RRF, Fusion, GlobalWeights, best_weights
from kinrank.study.sweep import subsample, sweep_neighbors

Basis = Literal["text", "candidates"]
Choice = Literal["auto", "none", "min_max", "l2", "z_score"]

_NEIGHBORS = (10, 25, 50, 100, 200, 400)
_PRIORS = (0.1, 1.0)
_FUSIONS = (RRF, RAW, *NORMALIZED, *MEANS)
_MAX_CHOOSING = 2000  # training queries that are used to choose weights, k and the prior


@dataclass(frozen=True)
class HybridPlan:
    """How weights are chosen and measured."""

    normalization: Choice = "auto"
    """Normalization that your engine has, for the weights per query, the best global weights and the oracle. ``"auto"``
    is the best on training queries.
    """
    ranker: KnnRanker = field(default_factory=KnnRanker)
    """Encoder of query texts; everything else is set by the study."""
    group: str | None = None
    """Query column whose values are never split across folds."""
    measure: Measure = NDCG @ 10
    """The measure."""
    seed: int = 0
    """Seed for the folds."""

    def global_weights(self, train: QuerySet) -> dict[str, GlobalWeights]:
        """Return the best weights of every fusion by name."""
        sample = subsample(train, _MAX_CHOOSING)
        found = {}
        for number, fusion in enumerate(_FUSIONS):
            report_progress("ways to combine scores", number, len(_FUSIONS))
            found[fusion.name] = best_weights(fusion, sample, self.measure)
        return found

    def best(self, found: dict[str, GlobalWeights]) -> GlobalWeights:
        """Return the best of the global weights that the engine can use: by rank, or in its normalization."""
        usable = [each for each in found.values() if self.normalization in ("auto", each.fusion.normalization)]
        return max((found[RRF.name], *usable), key=lambda each: each.quality)

    def best_fusion(self, found: dict[str, GlobalWeights]) -> Fusion:
        """Return the weighted sum that is best with the same weights for all queries."""
        return max((found[each.name] for each in self._fusions), key=lambda each: each.quality).fusion

    def learned(self, train: QuerySet) -> SingleRanker:
        """Fit the control: the learner of the weights per query, with the same weights for all queries.

        The normalization is chosen on the same folds of the training queries.
        """
        rankers = [SingleRanker(_learner(), scale=scale_of(fusion), missing="zero") for fusion in self._fusions]
        parts = list(inner_folds(train, group=self.group, seed=self.seed))

        def quality(ranker: SingleRanker) -> float:
            held_out = [
                self.measure.per_query(ranker.fit(some).predict(others), others.grades, others.offsets)
                for some, others in parts
            ]
            return mean_of(np.concatenate(held_out))

        best: SingleRanker = max(rankers, key=quality) if len(rankers) > 1 else rankers[0]
        return best.fit(train)

    def per_query(self, train: QuerySet, basis: Basis) -> PerQuery:
        """Fit nonnegative weights per query; normalization, k and prior are chosen on folds of the training queries."""
        template = self._template(train, basis)
        tried = []
        for number, fusion in enumerate(self._fusions):
            report_progress("normalizations", number, len(self._fusions))
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
        changed: KnnRanker = ranker.set_params(learner=_learner(), describe=described, missing="zero")
        return changed


@dataclass(frozen=True, eq=False)
class PerQuery:
    """A ranker with weights per query, and what was chosen for it."""

    ranker: KnnRanker
    fusion: Fusion
    choice: NeighborChoice


def bases_of(queries: QuerySet) -> tuple[Basis, ...]:
    """Return what weights per query can be predicted from: the text only if the queries have texts or vectors."""
    return ("text", "candidates") if has_text(queries) else ("candidates",)


def _learner() -> RankRLS:
    return RankRLS(nonnegative=True)


def scale_of(fusion: Fusion) -> Scale:
    """Return the `scale` of a ranker that weights the same values as a weighted sum."""
    return normalization_of(fusion.normalization) or "standard"


def global_ranker(train: QuerySet, found: GlobalWeights) -> SingleRanker:
    """Return the best global weights as a ranker, to save where weights per query gain nothing."""
    ranker = SingleRanker(_learner(), scale=scale_of(found.fusion), missing="zero").fit(train)
    factor = ranker.preparer_.factor_  # 0 for a search whose scores are all equal: it changes no order
    weights = np.divide(found.weights, factor, out=np.zeros_like(found.weights), where=factor > 0)
    ranker.learner_ = ranker.learner_.with_weights(weights)
    return ranker
