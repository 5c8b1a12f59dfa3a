"""Cluster models with rank aggregation: a model per cluster of judged queries, mixed for each query."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, Self

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
from kinrank.rankers.base import LinearRanker
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.cluster.modes import MODES, ClusterMode, ClusterSettings, Naive, ScoredQueries, Select
from kinrank.rankers.local.base import Prior, check_prior, coefficients
from kinrank.rankers.local.training_sets import Shrinkage, TrainingSet, make_training_set
from kinrank.store import nest, unnest

Mode = Literal["naive", "select", "transform"]

_QUERIES_AT_ONCE = 64  # mode="select" compares each with every judged query: few at once stay in the cache


class ClusterRanker(LinearRanker):
    """One linear model per cluster of judged queries; a query is scored by a mixture of them.

    score(q, d) = Σ_i weight_i(q) s_i(d)   (METHODS: section 3, Eq. 1). The modes differ in what a cluster is and how
    the weights, which we make sum to 1, are found; see `kinrank.rankers.cluster.modes` for each.

    Parameters
    ----------
    n_clusters : int
        How many clusters to look for; fewer are kept where fewer are found. With one the ranker is `SingleRanker`.
    mode : {"naive", "select", "transform"}
        ``"naive"`` clusters relevant documents and ranks by the model of the nearest cluster alone. ``"select"``
        weighs the models of the same clusters by the average precision they reached on judged queries where they
        depart as far from the reference. ``"transform"`` clusters queries by how high their best documents score, and
        weighs all models, less with distance.
    reference : str or int, optional
        The feature that ranks the candidates today (BM25 in the paper); ``"select"`` and ``"transform"`` need it.
    learner : {"ranksvm", "rankrls"} or LinearLearner
        What learns the global model and those of the clusters.
    top : int
        t, how many of its best documents by the global model describe a query.
    n_neighbors : int
        k of ``"select"``: the judged queries of each cluster that vouch for its model.
    relevant_from : float
        The lowest grade that is relevant.
    prior : {"none", "global"}
        What the models are pulled to: 0 as in the paper, or the global model, which makes small clusters safe.
    prior_strength : float
        How much, beside the learner's own penalty λ.
    scale, missing
        How features are prepared; see `SingleRanker`. Distances between documents are between prepared ones.
    seed : int
        For k-means.

    Attributes
    ----------
    labels_ : int64 array of shape (judged queries,)
        The cluster of each judged query.
    coef_ : float64 array of shape (clusters, features)
        The models, for prepared features. A cluster without a pair to learn from has the global one.
    global_coef_ : float64 array of shape (features,)
        The model of all queries.

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
        missing: Missing = "error",
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

    def cluster_weights(
        self, X: ArrayLike | QuerySet, *, qid: ArrayLike | None = None, group: ArrayLike | None = None
    ) -> Float64:
        """weight_i(q), what each cluster's model weighs for each query: shape (queries, clusters), rows sum to 1."""
        return self._cluster_weights(self.preparer_.apply(self._queries(X, None, qid, group)))

    def local_scores(
        self, X: ArrayLike | QuerySet, *, qid: ArrayLike | None = None, group: ArrayLike | None = None
    ) -> Float64:
        """s_i(d), the scores of every cluster's model: shape (clusters, rows), in the caller's row order.

        What the oracles of `kinrank.measure.oracle` choose from.
        """
        queries = self._queries(X, None, qid, group)
        scores = self.coef_ @ self.preparer_.transform(queries.X, queries).T
        return scores if queries is X else np.array([queries.in_caller_order(row) for row in scores])

    def predict_relevant_only(self, judged: QuerySet) -> Float64:
        """Scores of judged queries that are described by their relevant documents: the paper's RelevantOnly.

        An oracle: it says what ``mode="naive"`` would reach if the relevant documents were known. A query without
        any is described as usual.
        """
        queries = self._queries(judged)
        if type(self.mode_) is not Naive:
            raise ParameterError(f"RelevantOnly is an analysis of mode='naive', this is mode={self.mode!r}")
        prepared = self.preparer_.apply(queries)
        return _mixed(prepared, self.mode_.relevant_only(self._scored(prepared)) @ self.coef_)

    def _fit(self, queries: QuerySet) -> None:
        learner = make_learner(self.learner)
        self._check_settings(learner)
        self._open(queries.feature_names)
        self.preparer_ = Preparer(self.scale, self.missing).fit(queries)
        prepared = self.preparer_.apply(queries)
        training_set = make_training_set(learner, prepared)
        self.global_coef_ = coefficients(training_set.learn(np.arange(len(queries)), np.ones(len(queries))))
        judged = self._scored(prepared)
        self.labels_ = self.mode_.group(judged)
        shrinkage = Shrinkage(self.prior_strength, self.global_coef_) if self.prior == "global" else None
        self.coef_ = np.tile(self.global_coef_, (self.labels_.max() + 1, 1))
        with_pairs = np.unique(self.labels_[training_set.pairs > 0])
        learn = _ClusterLearner(training_set, self.labels_, shrinkage)
        for position, weights in current_executor(Serial()).map_unordered(learn, with_pairs.tolist()):
            self.coef_[with_pairs[position]] = weights
        if isinstance(self.mode_, Select):
            self.mode_.learn(judged, self.labels_, self.coef_)

    def _check_settings(self, learner: Learner) -> None:
        if not isinstance(learner, LinearLearner):
            raise ParameterError(
                f"the models of clusters are linear: learner must be 'ranksvm' or 'rankrls', got {learner!r}"
            )
        for name, value in (("n_clusters", self.n_clusters), ("top", self.top), ("n_neighbors", self.n_neighbors)):
            if value < 1:
                raise ParameterError(f"{name} must be at least 1, got {value}")
        check_prior(self.prior, self.prior_strength)

    def _open(self, feature_names: tuple[str, ...]) -> None:
        """The mode, not yet fitted, and the reference column."""
        if self.mode not in MODES:
            raise ParameterError(f"mode must be one of {', '.join(map(repr, MODES))}, got {self.mode!r}")
        made = MODES[self.mode]
        if made.needs_reference and self.reference is None:
            raise ParameterError(
                f"mode={self.mode!r} compares with a reference: give reference=, the feature that holds its score"
            )
        settings = ClusterSettings(self.n_clusters, self.top, self.n_neighbors, self.relevant_from, self.seed)
        self.mode_: ClusterMode = made(settings)
        self.reference_ = None if self.reference is None else feature_position(self.reference, feature_names)

    def _scored(self, prepared: QuerySet) -> ScoredQueries:
        by_global = prepared.X @ self.global_coef_
        # Preparing keeps the order of a column, so the reference may be read after missing scores are filled.
        by_reference = by_global if self.reference_ is None else prepared.X[:, self.reference_].astype(np.float64)
        return ScoredQueries(prepared, by_global, by_reference)

    def _cluster_weights(self, prepared: QuerySet) -> Float64:
        blocks = [prepared[first : first + _QUERIES_AT_ONCE] for first in range(0, len(prepared), _QUERIES_AT_ONCE)]
        return np.concatenate([self.mode_.weights(self._scored(block), self.coef_) for block in blocks])

    def _predict(self, queries: QuerySet) -> Float64:
        prepared = self.preparer_.apply(queries)
        return _mixed(prepared, self._cluster_weights(prepared) @ self.coef_)

    def _weights(self, queries: QuerySet) -> Float64:
        return self.preparer_.raw_weights(self._cluster_weights(self.preparer_.apply(queries)) @ self.coef_)

    def get_state(self) -> State:
        """Everything learned."""
        models = {"local": self.coef_, "global": self.global_coef_, "labels": self.labels_}
        return nest(preparer=self.preparer_.get_state(), models=models, mode=self.mode_.get_state())

    def set_state(self, state: State) -> Self:
        """Take over everything learned."""
        self._open(self.feature_names_)
        self.preparer_ = Preparer(self.scale, self.missing).set_state(unnest(state, "preparer"))
        models = unnest(state, "models")
        self.coef_, self.global_coef_, self.labels_ = models["local"], models["global"], models["labels"]
        self.mode_.set_state(unnest(state, "mode"))
        return self


@dataclass(frozen=True, eq=False)
class _ClusterLearner:
    """The weights of one cluster's model."""

    training_set: TrainingSet
    labels: Int64
    shrinkage: Shrinkage | None

    def __call__(self, cluster: int) -> Float64:
        members = np.flatnonzero(self.labels == cluster)
        return coefficients(self.training_set.learn(members, np.ones(len(members)), self.shrinkage))


def _mixed(prepared: QuerySet, weights: Float64) -> Float64:
    """Eq. 1 as one weight vector per query: the models are linear, so mixing them is mixing their weights."""
    scores: Float64 = np.einsum("ij,ij->i", prepared.X, weights[prepared.query_of_row])
    return scores
