"""Cluster models with rank aggregation: a model per cluster of judged queries, mixed for each query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float64, Int64, State
from kinrank.data.features import feature_position
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.learn import make_learner
from kinrank.learn.base import Learner, LinearLearner
from kinrank.learn.prepare import Missing, Preparer, Scale
from kinrank.parallel import Serial, current_executor
from kinrank.rankers.base import Ranker, WeightedRanker
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.cluster.modes import MODES, ClusterMode, ClusterSettings, Naive, ScoredQueries
from kinrank.rankers.intake import QueryArrays, takes_arrays
from kinrank.rankers.linear_weights import LinearWeights, exact_weights
from kinrank.rankers.local.model import Prior, check_prior, coefficients
from kinrank.rankers.local.training_base import Shrinkage, TrainingSet
from kinrank.rankers.local.training_sets import training_set_class
from kinrank.store import nest, unnest

Mode = Literal["naive", "select", "transform"]

_QUERIES_AT_ONCE = 64  # mode="select" compares each with all judged queries; small blocks fit into the cache


class ClusterRanker(WeightedRanker, Ranker):
    """One linear model per cluster of judged queries; a query is scored by a mixture of them.

    score(q, d) = Σ_i weight_i(q) s_i(d) (the paper's Eq. 1), with weights that sum to 1. The modes differ in how
    queries are clustered and how the weights are computed; see `kinrank.rankers.cluster.modes`.

    Parameters
    ----------
    n_clusters : int
        The maximum number of clusters; empty clusters are dropped. With one cluster the ranker equals `SingleRanker`.
    mode : {"naive", "select", "transform"}
        ``"naive"`` clusters relevant documents and uses only the model of the nearest cluster. ``"select"`` uses the
        same clusters, and weights each model by its average precision on judged queries on which it diverges about as
        much from the reference. ``"transform"`` clusters queries by the scores of their best documents, and weights
        all models, nearer clusters more.
    reference : str or int, optional
        The feature that ranks the candidates now (BM25 in the paper). Required for ``"select"`` and ``"transform"``.
    learner : {"ranksvm", "rankrls"} or LinearLearner
        Learner of the global model and of the clusters' models.
    top : int
        t: a query is described by its best t documents according to the global model.
    n_neighbors : int
        k of ``"select"``: how many judged queries of each cluster decide the weight of its model.
    relevant_from : float
        The lowest grade that is relevant.
    prior : {"none", "global"}
        What the models are shrunk to: 0 as in the paper, or the global model, which makes small clusters safe.
    prior_strength : float
        Strength of the shrinkage to the global model, in addition to the learner's own penalty λ.
    scale, missing
        How features are prepared; see `SingleRanker`. Clusters are found on prepared features.
    seed : int
        Seed for k-means.

    Attributes
    ----------
    labels_ : int64 array of shape (judged queries,)
        The cluster of each judged query.
    coef_ : float64 array of shape (clusters, features)
        The weights of each cluster's model, for prepared features; those of the global model if a cluster has no pairs.
    global_coef_ : float64 array of shape (features,)
        The weights of the global model.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> ranker = ClusterRanker(n_clusters=2).fit(camps)
    >>> ranker.score(camps)
    1.0
    >>> ranker.cluster_weights(camps[:2]).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(weights=True, missing=True)

    def __init__(
        self,
        n_clusters: int = 10,
        *,
        mode: Mode = "naive",
        reference: str | int | None = None,
        learner: str | Learner = "ranksvm",
        top: int = 10,
        n_neighbors: int = 10,
        relevant_from: float = 1,
        prior: Prior = "none",
        prior_strength: float = 0.1,
        scale: Scale = "standard",
        missing: Missing = "mean",
        seed: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.mode = mode
        self.reference = reference
        self.learner = learner
        self.top = top
        self.n_neighbors = n_neighbors
        self.relevant_from = relevant_from
        self.prior = prior
        self.prior_strength = prior_strength
        self.scale = scale
        self.missing = missing
        self.seed = seed

    @takes_arrays
    def cluster_weights(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> Float64:
        """Return weight_i(q), the weight of each cluster's model: shape (queries, clusters), rows sum to 1."""
        return self._cluster_weights(self.preparer_.apply(self._queries(X, **arrays)))

    @takes_arrays
    def local_scores(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> Float64:
        """Return s_i(d), the scores by each cluster's model: shape (clusters, rows), in the caller's row order.

        The oracles of `kinrank.measure.evaluation` choose among them.
        """
        queries = self._queries(X, **arrays)
        scores = self.coef_ @ self.preparer_.transform(queries.X, queries).T
        return np.array([queries.in_caller_order(row) for row in scores])

    def predict_relevant_only(self, judged: QuerySet) -> Float64:
        """Score judged queries, describing them by their relevant documents: the paper's RelevantOnly.

        This is an oracle: the quality of ``mode="naive"`` if the relevant documents were known. A query without
        relevant documents is described as usual.
        """
        queries = self._queries(judged)
        if type(self.mode_) is not Naive:
            raise ParameterError(f"predict_relevant_only needs mode='naive', got mode={self.mode!r}")
        prepared = self.preparer_.apply(queries)
        return _score(prepared, self.mode_.relevant_only(self._scored(prepared)) @ self.coef_)

    def _fit(self, queries: QuerySet) -> None:
        learner = make_learner(self.learner)
        self._check_settings(learner)
        self._make_mode(queries.feature_names)
        self.preparer_ = Preparer(self.scale, self.missing).fit(queries)
        prepared = self.preparer_.apply(queries)
        training_set = training_set_class(learner).of(learner, prepared)
        self.global_coef_ = coefficients(training_set.learn(np.arange(len(queries)), np.ones(len(queries))))
        judged = self._scored(prepared)
        self.labels_ = self.mode_.group(judged)
        shrinkage = Shrinkage(self.prior_strength, self.global_coef_) if self.prior == "global" else None
        self.coef_ = np.tile(self.global_coef_, (self.labels_.max() + 1, 1))
        with_pairs = np.unique(self.labels_[training_set.pairs > 0])
        learn = _ClusterLearner(training_set, self.labels_, shrinkage)
        for position, weights in current_executor(Serial()).map_unordered(learn, with_pairs.tolist()):
            self.coef_[with_pairs[position]] = weights
        self.mode_.learn(judged, self.labels_, self.coef_)

    def _check_settings(self, learner: Learner) -> None:
        if not isinstance(learner, LinearLearner):
            raise ParameterError(f"learner must be linear, such as 'ranksvm' or 'rankrls', got {learner!r}")
        for name, value in (("n_clusters", self.n_clusters), ("top", self.top), ("n_neighbors", self.n_neighbors)):
            if value < 1:
                raise ParameterError(f"{name} must be at least 1, got {value}")
        check_prior(self.prior, self.prior_strength)

    def _make_mode(self, feature_names: tuple[str, ...]) -> None:
        """Set the mode, unfitted, and the reference column."""
        if self.mode not in MODES:
            raise ParameterError(f"mode must be one of {', '.join(map(repr, MODES))}, got {self.mode!r}")
        cls = MODES[self.mode]
        if cls.needs_reference and self.reference is None:
            raise ParameterError(f"mode={self.mode!r} needs reference=, the feature that ranks the candidates now")
        settings = ClusterSettings(self.n_clusters, self.top, self.n_neighbors, self.relevant_from, self.seed)
        self.mode_: ClusterMode = cls(settings)
        self.reference_ = None if self.reference is None else feature_position(self.reference, feature_names)

    def _scored(self, prepared: QuerySet) -> ScoredQueries:
        scores = prepared.X @ self.global_coef_
        # Preparation keeps the order within a column, so the prepared column can serve as reference.
        reference = scores if self.reference_ is None else prepared.X[:, self.reference_].astype(np.float64)
        return ScoredQueries(prepared, scores, reference)

    def _cluster_weights(self, prepared: QuerySet) -> Float64:
        blocks = [prepared[first : first + _QUERIES_AT_ONCE] for first in range(0, len(prepared), _QUERIES_AT_ONCE)]
        return np.concatenate([self.mode_.weights(self._scored(block), self.coef_) for block in blocks])

    def _predict(self, queries: QuerySet) -> Float64:
        prepared = self.preparer_.apply(queries)
        return _score(prepared, self._cluster_weights(prepared) @ self.coef_)

    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        weights = self.preparer_.raw_weights(self._cluster_weights(self.preparer_.apply(queries)) @ self.coef_)
        return exact_weights(queries, weights, self.missing)

    def get_state(self) -> State:
        """Return everything learned."""
        models = {"local": self.coef_, "global": self.global_coef_, "labels": self.labels_}
        return nest(preparer=self.preparer_.get_state(), models=models, mode=self.mode_.get_state())

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self._make_mode(self.feature_names_)
        self.preparer_ = Preparer(self.scale, self.missing).set_state(unnest(state, "preparer"))
        models = unnest(state, "models")
        self.coef_, self.global_coef_, self.labels_ = models["local"], models["global"], models["labels"]
        self.mode_.set_state(unnest(state, "mode"))
        return self


@dataclass(frozen=True, eq=False)
class _ClusterLearner:
    """Learns the weights of one cluster's model."""

    training_set: TrainingSet
    labels: Int64
    shrinkage: Shrinkage | None

    def __call__(self, cluster: int) -> Float64:
        members = np.flatnonzero(self.labels == cluster)
        return coefficients(self.training_set.learn(members, np.ones(len(members)), self.shrinkage))


def _score(prepared: QuerySet, weights: Float64) -> Float64:
    """Score by one weight vector per query: a mixture of linear models is linear (Eq. 1)."""
    scores: Float64 = np.einsum("ij,ij->i", prepared.X, weights[prepared.query_of_row])
    return scores
