"""`ClusterRanker`: a model per cluster of judged queries, mixed for each query, in three modes."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from kinrank.arrays import Float64, Int64, State
from kinrank.data.query_rows import feature_position
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.kin.blocks import statistics
from kinrank.learn import make_learner
from kinrank.learn._prepare import Missing, Preparer, Scale
from kinrank.learn.base import Learner, LinearLearner
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import AP
from kinrank.parallel import Serial, current_executor
from kinrank.rankers._local.model import Prior, check_prior, coefficients
from kinrank.rankers._local.training_sets import Shrinkage, TrainingSet, training_set_class
from kinrank.rankers.base import LinearWeights, Ranker, WeightedRanker, exact_weights
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.intake import QueryArrays, takes_arrays
from kinrank.store import nest, unnest

_RESTARTS = 3  # of k-means


@dataclass(frozen=True)
class _ClusterSettings:
    """The settings of `ClusterRanker` that a mode needs."""

    n_clusters: int
    top: int
    n_neighbors: int
    relevant_from: float
    seed: int


@dataclass(frozen=True, eq=False)
class _ScoredQueries:
    """Queries with prepared features, and their scores by the global model and by the reference.

    Without a reference, both scores are those of the global model.
    """

    queries: QuerySet
    global_scores: Float64
    reference_scores: Float64

    def top_means(self, table: NDArray[np.float32], top: int) -> Float64:
        """Return the mean of `table`, one row per candidate, over the best `top` candidates of each query."""
        with_score = np.column_stack([table, self.global_scores.astype(np.float32)])
        means: Float64 = statistics(with_score, self.queries.offsets, table.shape[1], top)[:, 0, :-1]
        return means


class _ClusterMode(ABC):
    """Clusters judged queries, and weights the clusters' models for any query."""

    needs_reference: ClassVar[bool] = True

    centers: Float64
    """The center of each cluster."""

    def __init__(self, settings: _ClusterSettings) -> None:
        self.settings = settings

    @abstractmethod
    def group(self, judged: _ScoredQueries) -> Int64:
        """Return the cluster of each judged query, numbered from 0 without gaps."""

    def learn(self, judged: _ScoredQueries, labels: Int64, coef: Float64) -> None:  # noqa: B027 - most need nothing
        """Learn from the clusters' models, whose weights are the rows of `coef`."""

    @abstractmethod
    def weights(self, scored: _ScoredQueries, coef: Float64) -> Float64:
        """Return weight_i(q) of Eq. 1, shape (queries, clusters); each row sums to 1."""

    def get_state(self) -> State:
        """Return everything learned."""
        return {"centers": self.centers}

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.centers = state["centers"]
        return self


class Naive(_ClusterMode):
    """Use only the nearest cluster's model (Algorithm 1).

    Relevant documents are clustered by k-means. A query belongs to the cluster with most of its relevant documents
    (the first such cluster), and the center of a cluster is the mean of its queries' relevant documents. A query
    without relevant documents joins the nearest cluster, as a query to be ranked does. Clusters without queries are
    dropped.
    """

    needs_reference = False

    def group(self, judged: _ScoredQueries) -> Int64:
        """Cluster queries by the majority of their relevant documents."""
        queries = judged.queries
        relevant = queries.grades >= self.settings.relevant_from
        if not relevant.any():
            raise DataError(
                f"no candidate has a grade of {self.settings.relevant_from:g} or more: set relevant_from= to the "
                "lowest grade that is relevant"
            )
        documents, owner = queries.X[relevant], queries.query_of_row[relevant]
        votes = np.zeros((len(queries), self.settings.n_clusters), dtype=np.int64)
        np.add.at(votes, (owner, _k_means(documents, self.settings)), 1)
        voting = votes.any(axis=1)
        labels = np.empty(len(queries), dtype=np.int64)
        labels[voting] = _without_gaps(votes[voting].argmax(axis=1))
        self.centers = _means(documents, labels[owner])
        if not voting.all():
            labels[~voting] = self.nearest(self._points(judged)[~voting])
        return labels

    def weights(self, scored: _ScoredQueries, coef: Float64) -> Float64:  # noqa: ARG002
        """Return 1 for the nearest cluster and 0 for the others."""
        return self.one_hot(self.nearest(self._points(scored)))

    def relevant_only(self, judged: _ScoredQueries) -> Float64:
        """Return the weights if judged queries are described by their relevant documents, if they have any."""
        queries = judged.queries
        relevant = queries.grades >= self.settings.relevant_from
        points, owner = self._points(judged), queries.query_of_row[relevant]
        with_relevant = np.unique(owner)
        points[with_relevant] = _means(queries.X[relevant], np.searchsorted(with_relevant, owner))
        return self.one_hot(self.nearest(points))

    def nearest(self, points: Float64) -> Int64:
        """Return the cluster nearest to each point."""
        nearest: Int64 = cdist(points, self.centers).argmin(axis=1)
        return nearest

    def one_hot(self, labels: Int64) -> Float64:
        """Return weights of 1 for the given clusters and 0 for the others."""
        return np.eye(len(self.centers))[labels]

    def _points(self, scored: _ScoredQueries) -> Float64:
        return scored.top_means(scored.queries.X, self.settings.top)


class Select(Naive):
    """Clusters as in `Naive`, with models weighted by their quality on queries of similar divergence (Algorithm 2).

    δ_i(q) is the divergence of model i from the reference on q (Eq. 2). The weight of cluster i is the sum of the
    average precisions of its model on its `n_neighbors` judged queries nearest to q by |δ_i(q) - δ_i(q')|, without
    those whose distance is above the median over all judged queries. Judged queries without a relevant document have
    no average precision and are left out.
    """

    needs_reference = True

    def learn(self, judged: _ScoredQueries, labels: Int64, coef: Float64) -> None:
        """Compute δ and the average precision of each judged query by its own cluster's model."""
        queries = judged.queries
        scores = np.einsum("ij,ij->i", queries.X, coef[labels][queries.query_of_row])
        measure = AP(relevant_from=self.settings.relevant_from, no_relevant="skip")
        precision = measure.per_query(scores, queries.grades, queries.offsets)
        judged_by_cluster = np.argsort(labels, kind="stable")
        measured = judged_by_cluster[np.isfinite(precision[judged_by_cluster])]
        self.labels, self.precision = labels[measured], precision[measured]
        self.divergence = divergences(scores[:, None], judged.reference_scores, queries.offsets)[measured, 0]

    def weights(self, scored: _ScoredQueries, coef: Float64) -> Float64:
        """Return the summed average precisions, divided by their sum over clusters."""
        queries = scored.queries
        divergence = divergences(queries.X @ coef.T, scored.reference_scores, queries.offsets)
        distance = np.abs(divergence[:, self.labels] - self.divergence)
        limit = np.median(distance, axis=1, keepdims=True)
        bounds = np.searchsorted(self.labels, np.arange(len(coef) + 1))
        sums = np.zeros(divergence.shape)
        for cluster in np.flatnonzero(np.diff(bounds)):
            members = slice(bounds[cluster], bounds[cluster + 1])
            k = min(self.settings.n_neighbors, members.stop - members.start)
            near = np.argpartition(distance[:, members], k - 1, axis=1)[:, :k]
            within = np.take_along_axis(distance[:, members], near, axis=1) <= limit
            sums[:, cluster] = (self.precision[members][near] * within).sum(axis=1)
        # The sum is positive: the nearest judged query is within the median and has a relevant document.
        weights: Float64 = sums / sums.sum(axis=1, keepdims=True)
        return weights

    def get_state(self) -> State:
        """Return the centers, and the quality of the clusters' models."""
        quality = {"labels": self.labels, "precision": self.precision, "divergence": self.divergence}
        return super().get_state() | quality

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.labels, self.precision, self.divergence = state["labels"], state["precision"], state["divergence"]
        return super().set_state(state)


class Transform(_ClusterMode):
    """Clusters of queries by two mean scores; all models count, nearer clusters more (Algorithm 3).

    The two numbers are the means of the reference score and of the global model's score over the best `top` documents
    by the global model, both scaled to 0 to 1 within the query. The weights are the softmax of the negative distances
    to the centers.
    """

    def group(self, judged: _ScoredQueries) -> Int64:
        """Cluster queries by k-means."""
        points = self._points(judged)
        labels = _without_gaps(_k_means(points, self.settings))
        self.centers = _means(points, labels)
        return labels

    def weights(self, scored: _ScoredQueries, coef: Float64) -> Float64:  # noqa: ARG002
        """Return the softmax of the negative distances."""
        weights: Float64 = softmax(-cdist(self._points(scored), self.centers), axis=1)
        return weights

    def _points(self, scored: _ScoredQueries) -> Float64:
        both = np.column_stack([scored.reference_scores, scored.global_scores])
        return scored.top_means(normalized(both, scored.queries.offsets).astype(np.float32), self.settings.top)


MODES: dict[str, type[_ClusterMode]] = {"naive": Naive, "select": Select, "transform": Transform}


def _k_means(points: NDArray[np.floating], settings: _ClusterSettings) -> Int64:
    """Return the cluster of each point. There are at most as many clusters as points."""
    k_means = KMeans(min(settings.n_clusters, len(points)), n_init=_RESTARTS, random_state=settings.seed)
    with warnings.catch_warnings():
        # With fewer distinct points than clusters, some clusters stay empty and are dropped.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels: Int64 = k_means.fit_predict(points).astype(np.int64)
    return labels


def _without_gaps(labels: Int64) -> Int64:
    """Renumber labels from 0 without gaps."""
    renumbered: Int64 = np.unique(labels, return_inverse=True)[1]
    return renumbered


def _means(values: NDArray[np.floating], labels: Int64) -> Float64:
    """Return the mean of the rows of each label. Labels have no gaps."""
    sums = np.zeros((labels.max(initial=-1) + 1, values.shape[1]))
    np.add.at(sums, labels, values)
    means: Float64 = sums / np.bincount(labels)[:, None]
    return means


def normalized(scores: Float64, offsets: Int64) -> Float64:
    """Scale scores within each query to the range 0 to 1; equal scores become 0.

    Parameters
    ----------
    scores
        One column per model.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``. Every query has rows.

    Examples
    --------
    >>> normalized(np.array([[3.0], [5.0], [4.0], [7.0]]), np.array([0, 3, 4])).ravel().tolist()
    [0.0, 1.0, 0.5, 0.0]
    """
    sizes = np.diff(offsets)
    low = np.minimum.reduceat(scores, offsets[:-1], axis=0)
    width = np.maximum.reduceat(scores, offsets[:-1], axis=0) - low
    factor = np.divide(1.0, width, out=np.zeros_like(width), where=width > 0)
    unit: Float64 = (scores - np.repeat(low, sizes, axis=0)) * np.repeat(factor, sizes, axis=0)
    return unit


def divergences(scores: Float64, reference: Float64, offsets: Int64) -> Float64:
    """Return the Kullback-Leibler divergence of each model from a reference on each query (the paper's Eq. 2).

    δ_i(q) = Σ_d p_i(d) log(p_i(d) / p_b(d)), where p_i and p_b are the softmax over q's documents of the scores of
    model i and of the reference, both scaled to 0 to 1 within the query so that units do not matter.

    Parameters
    ----------
    scores
        One column per model.
    reference
        One score per row.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``. Every query has rows.

    Returns
    -------
    float64 array of shape (queries, models)

    Examples
    --------
    >>> scores = np.array([[1.0, 9.0], [2.0, 5.0], [4.0, 3.0]])
    >>> divergences(scores, np.array([10.0, 20.0, 40.0]), np.array([0, 3])).round(3).tolist()
    [[0.0, 0.336]]
    """
    log_p = _log_softmax(normalized(scores, offsets), offsets)
    log_b = _log_softmax(normalized(reference[:, None], offsets), offsets)
    return np.add.reduceat(np.exp(log_p) * (log_p - log_b), offsets[:-1], axis=0)


def _log_softmax(scores: Float64, offsets: Int64) -> Float64:
    """Return the log softmax within each query. Scores are between 0 and 1, so nothing overflows."""
    total = np.log(np.add.reduceat(np.exp(scores), offsets[:-1], axis=0))
    logs: Float64 = scores - np.repeat(total, np.diff(offsets), axis=0)
    return logs


# --- cluster models with rank aggregation: a model per cluster of judged queries, mixed for each query ----------------


Mode = Literal["naive", "select", "transform"]

_QUERIES_AT_ONCE = 64  # mode="select" compares each with all judged queries; small blocks fit into the cache


class ClusterRanker(WeightedRanker, Ranker):
    """One linear model per cluster of judged queries; a query is scored by a mixture of them.

    score(q, d) = Σ_i weight_i(q) s_i(d) (Eq. 1 of "local models with rank aggregation", section 2.1 and Figure 1), with
    weights that sum to 1. The modes are Algorithms 1, 2 and 3 of its section 2.2. They differ in how queries are
    clustered and how the weights are computed; see `kinrank.papers.cluster`.

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

    @classmethod
    def as_published(cls, mode: Mode = "naive", *, reference: str | int = "bm25", **settings: Any) -> Self:
        """Return a ranker of the paper (section 2.2): Algorithm 1, 2 or 3, with the clusters' models by RankSVM.

        Features are used as they are, and RankSVM has the plain hinge. The paper chooses everything else by MAP on
        validation queries, so `n_clusters`, `top` and `n_neighbors` are to be chosen, too.
        docs/research/as-published.md lists what is our reading.

        Examples
        --------
        >>> ClusterRanker.as_published("select", reference="score", n_clusters=20)
        ClusterRanker(learner=RankSVM(loss='hinge'), mode='select', n_clusters=20,
                      reference='score', scale='none')
        """
        published: dict[str, Any] = {"mode": mode, "learner": RankSVM(loss="hinge"), "scale": "none"}
        published["reference"] = None if mode == "naive" else reference
        return cls(**published | settings)

    @takes_arrays
    def cluster_weights(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> Float64:
        """Return weight_i(q), the weight of each cluster's model: shape (queries, clusters), rows sum to 1."""
        return self._cluster_weights(self.preparer_.apply(self._queries(X, **arrays)))

    @takes_arrays
    def local_scores(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> Float64:
        """Return s_i(d), the scores by each cluster's model: shape (clusters, rows), in the caller's row order.

        What the best of them reaches for each query is an upper bound for any choice.
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
        settings = _ClusterSettings(self.n_clusters, self.top, self.n_neighbors, self.relevant_from, self.seed)
        self.mode_: _ClusterMode = cls(settings)
        self.reference_ = None if self.reference is None else feature_position(self.reference, feature_names)

    def _scored(self, prepared: QuerySet) -> _ScoredQueries:
        scores = prepared.X @ self.global_coef_
        # Preparation keeps the order within a column, so the prepared column can serve as reference.
        reference = scores if self.reference_ is None else prepared.X[:, self.reference_].astype(np.float64)
        return _ScoredQueries(prepared, scores, reference)

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
