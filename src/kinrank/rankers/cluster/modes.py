"""How queries are grouped into clusters, and what each cluster's model weighs for a query: one class per mode."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from kinrank.arrays import Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.describe.summaries import statistics
from kinrank.errors import DataError
from kinrank.measure import AP
from kinrank.rankers.cluster.query_scores import divergences, normalized

_RESTARTS = 3  # of k-means; the best is kept


@dataclass(frozen=True)
class ClusterSettings:
    """What `ClusterRanker` was told and a mode needs to know."""

    n_clusters: int
    top: int
    n_neighbors: int
    relevant_from: float
    seed: int


@dataclass(frozen=True, eq=False)
class ScoredQueries:
    """Queries with prepared features, and what the global model and the reference (or the former again) score them."""

    queries: QuerySet
    by_global: Float64
    by_reference: Float64

    def top_means(self, table: NDArray[np.float32], top: int) -> Float64:
        """The mean of `table`, one row per candidate, over the `top` best of each query by the global model."""
        with_score = np.column_stack([table, self.by_global.astype(np.float32)])
        means: Float64 = statistics(with_score, self.queries.offsets, table.shape[1], top)[:, 0, :-1]
        return means


class ClusterMode(ABC):
    """Groups judged queries, then says for any query what each group's model weighs."""

    needs_reference: ClassVar[bool] = True

    centers: Float64
    """The clusters as points."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings

    @abstractmethod
    def group(self, judged: ScoredQueries) -> Int64:
        """The cluster of each judged query; every cluster from 0 to the highest has at least one."""

    @abstractmethod
    def weights(self, seen: ScoredQueries, coef: Float64) -> Float64:
        """weight_i(q) of Eq. 1, shape (queries, clusters); each row sums to 1."""

    def get_state(self) -> State:
        """What was learned."""
        return {"centers": self.centers}

    def set_state(self, state: State) -> Self:
        """Take over what was learned."""
        self.centers = state["centers"]
        return self


class Naive(ClusterMode):
    """The nearest cluster's model alone (Algorithm 1).

    K-means over relevant documents; a query belongs to the cluster with most of its own (the first where two have as
    many), and a cluster is then the mean of its queries' relevant documents. A query without relevant documents
    joins the cluster nearest to it, as a query to be ranked would. A cluster that no query belongs to is dropped.
    """

    needs_reference = False

    def group(self, judged: ScoredQueries) -> Int64:
        """By the majority of relevant documents."""
        queries = judged.queries
        relevant = queries.grades >= self.settings.relevant_from
        if not relevant.any():
            raise DataError(
                f"no candidate has a grade of {self.settings.relevant_from:g} or more, so there is nothing to cluster: "
                "set relevant_from= to the lowest grade that is relevant"
            )
        documents, owner = queries.X[relevant], queries.query_of_row[relevant]
        votes = np.zeros((len(queries), self.settings.n_clusters), dtype=np.int64)
        np.add.at(votes, (owner, _k_means(documents, self.settings)), 1)
        voting = votes.any(axis=1)
        labels = np.empty(len(queries), dtype=np.int64)
        labels[voting] = _closed_up(votes[voting].argmax(axis=1))
        self.centers = _means(documents, labels[owner])
        if not voting.all():
            labels[~voting] = self.nearest(self._points(judged)[~voting])
        return labels

    def weights(self, seen: ScoredQueries, coef: Float64) -> Float64:  # noqa: ARG002
        """1 for the nearest cluster, 0 for the others."""
        return self.only(self.nearest(self._points(seen)))

    def relevant_only(self, judged: ScoredQueries) -> Float64:
        """The same where judged queries are described by their relevant documents, if they have any."""
        queries = judged.queries
        relevant = queries.grades >= self.settings.relevant_from
        points, owner = self._points(judged), queries.query_of_row[relevant]
        known = np.unique(owner)
        points[known] = _means(queries.X[relevant], np.searchsorted(known, owner))
        return self.only(self.nearest(points))

    def nearest(self, points: Float64) -> Int64:
        """The cluster nearest to each point."""
        nearest: Int64 = cdist(points, self.centers).argmin(axis=1)
        return nearest

    def only(self, labels: Int64) -> Float64:
        """All weight on one cluster each."""
        return np.eye(len(self.centers))[labels]

    def _points(self, seen: ScoredQueries) -> Float64:
        return seen.top_means(seen.queries.X, self.settings.top)


class Select(Naive):
    """Clusters as in `Naive`; each model weighs what it reached on queries where it departs as far from the reference.

    Algorithm 2: with δ_i(q) the divergence of model i from the reference on q (Eq. 2), the weight of cluster i is the
    sum of the average precisions of its model on its `n_neighbors` judged queries nearest to q by |δ_i(q) - δ_i(q')|,
    without those farther from q than half of all judged queries are. Judged queries without a relevant document
    have no average precision and take no part.
    """

    needs_reference = True

    def learn(self, judged: ScoredQueries, labels: Int64, coef: Float64) -> None:
        """δ and average precision of each judged query by its own cluster's model, a row of `coef`."""
        queries = judged.queries
        scores = np.einsum("ij,ij->i", queries.X, coef[labels][queries.query_of_row])
        measure = AP(relevant_from=self.settings.relevant_from, no_relevant="skip")
        precision = measure.per_query(scores, queries.grades, queries.offsets)
        judged_by_cluster = np.argsort(labels, kind="stable")
        kept = judged_by_cluster[np.isfinite(precision[judged_by_cluster])]
        self.labels, self.precision = labels[kept], precision[kept]
        self.divergence = divergences(scores[:, None], judged.by_reference, queries.offsets)[kept, 0]

    def weights(self, seen: ScoredQueries, coef: Float64) -> Float64:
        """Summed average precisions, divided by their sum over clusters."""
        divergence = divergences(seen.queries.X @ coef.T, seen.by_reference, seen.queries.offsets)
        away = np.abs(divergence[:, self.labels] - self.divergence)
        limit = np.median(away, axis=1, keepdims=True)
        bounds = np.searchsorted(self.labels, np.arange(len(coef) + 1))
        sums = np.zeros(divergence.shape)
        for cluster in np.flatnonzero(np.diff(bounds)):
            own = slice(bounds[cluster], bounds[cluster + 1])
            k = min(self.settings.n_neighbors, own.stop - own.start)
            near = np.argpartition(away[:, own], k - 1, axis=1)[:, :k]
            relevant = np.take_along_axis(away[:, own], near, axis=1) <= limit
            sums[:, cluster] = (self.precision[own][near] * relevant).sum(axis=1)
        # Above 0: the nearest judged query of all is within the median, and has a relevant document.
        weights: Float64 = sums / sums.sum(axis=1, keepdims=True)
        return weights

    def get_state(self) -> State:
        """The clusters' means, and what their models reached."""
        reached = {"labels": self.labels, "precision": self.precision, "divergence": self.divergence}
        return super().get_state() | reached

    def set_state(self, state: State) -> Self:
        """Take them over."""
        self.labels, self.precision, self.divergence = state["labels"], state["precision"], state["divergence"]
        return super().set_state(state)


class Transform(ClusterMode):
    """Queries as points of two numbers; every model weighs, less with distance (Algorithm 3).

    The numbers are the means, over the `top` best documents by the global model, of the scores of the reference and
    of the global model, both from 0 to 1 within the query. The weights are the softmax of minus the distances to the
    clusters' means.
    """

    def group(self, judged: ScoredQueries) -> Int64:
        """By k-means."""
        points = self._points(judged)
        labels = _closed_up(_k_means(points, self.settings))
        self.centers = _means(points, labels)
        return labels

    def weights(self, seen: ScoredQueries, coef: Float64) -> Float64:  # noqa: ARG002
        """Softmax of minus the distances."""
        weights: Float64 = softmax(-cdist(self._points(seen), self.centers), axis=1)
        return weights

    def _points(self, seen: ScoredQueries) -> Float64:
        both = np.column_stack([seen.by_reference, seen.by_global])
        return seen.top_means(normalized(both, seen.queries.offsets).astype(np.float32), self.settings.top)


MODES: dict[str, type[ClusterMode]] = {"naive": Naive, "select": Select, "transform": Transform}


def _k_means(points: NDArray[np.floating], settings: ClusterSettings) -> Int64:
    """The cluster of each point; fewer clusters than asked for where there are fewer points."""
    k_means = KMeans(min(settings.n_clusters, len(points)), n_init=_RESTARTS, random_state=settings.seed)
    with warnings.catch_warnings():
        # Fewer distinct points than clusters: some stay empty and are dropped.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels: Int64 = k_means.fit_predict(points).astype(np.int64)
    return labels


def _closed_up(labels: Int64) -> Int64:
    """Numbers without gaps."""
    closed: Int64 = np.unique(labels, return_inverse=True)[1]
    return closed


def _means(values: NDArray[np.floating], labels: Int64) -> Float64:
    """The mean of the rows of each label; labels have no gaps."""
    sums = np.zeros((labels.max(initial=-1) + 1, values.shape[1]))
    np.add.at(sums, labels, values)
    means: Float64 = sums / np.bincount(labels)[:, None]
    return means
