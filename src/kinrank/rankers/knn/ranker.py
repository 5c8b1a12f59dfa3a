"""KNN: every query is ranked by a model learned from the judged queries most like it (Geng et al., SIGIR 2008)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from numbers import Integral, Real
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.data.vectors import QueryVectors
from kinrank.describe import Describer
from kinrank.describe.spec import Spec
from kinrank.errors import ParameterError
from kinrank.learn.base import Learner
from kinrank.learn.prepare import Missing, Scale
from kinrank.neighbors import NeighborIndex, make_index, restore_index
from kinrank.parallel import Threads, current_executor, map_ordered
from kinrank.rankers.base import Scored
from kinrank.rankers.cells.memory import CellMemory, nearest_cells
from kinrank.rankers.knn.judgments import ChangingRanker
from kinrank.rankers.knn.offline import OfflineModels
from kinrank.rankers.local.base import Prior
from kinrank.rankers.local.explanation import Explanation, explain_query
from kinrank.rankers.local.neighborhoods import Neighborhoods, in_blocks
from kinrank.store import nest, unnest

Mode = Literal["online", "offline-1", "offline-2"]

_SAMPLE = 1000


class KnnRanker(ChangingRanker):
    """A model per query, learned from its nearest judged queries.

    Parameters
    ----------
    n_neighbors : int
        k; all judged queries where there are fewer. With all of them the ranker is `SingleRanker`.
    mode : {"online", "offline-1", "offline-2"}
        ``"online"`` learns the model when the query comes: with RankRLS a sum and a solve. The offline modes learn
        one model per judged query in advance; ``"offline-1"`` takes the one whose training set shares most pairs
        with the query's neighbors (Eq. 1), ``"offline-2"`` that of the single nearest judged query.
    radius : float, optional
        Neighbors are all judged queries within this distance, in place of `n_neighbors`. A query that has none is
        ranked by the global model.
    learner : {"rankrls", "ranksvm", "lambdamart"} or Learner
        What learns a local model. RankRLS makes it affordable; LambdaMART grows its trees anew for every query, which
        is for study, not for serving.
    describe : str, list, dict or Describer
        How a query becomes a point: ``"mean"`` (the paper's), ``"summaries"``, ``"summaries+text"``...; see
        `kinrank.describe.Describer`.
    reference : str or int, optional
        The feature (BM25 in the paper) whose best candidates describe the query; without one the first candidates
        do, in the order given.
    index : str or NeighborIndex
        ``"auto"`` chooses by size, when fitted.
    cells : int, optional
        Keep sums over so many cells of judged queries that are alike, in place of every judged query: learning a
        local model then costs the same for any number of them. The nearest cells that hold `n_neighbors` queries
        are learned from, the last in part. Needs RankRLS and ``mode="online"``; see `kinrank.choose_cells`.
    neighbor_weights : str
        ``"uniform"`` as in the paper, or less with distance: ``"gaussian"``, ``"tricube"``, ``"epanechnikov"``,
        ``"inverse"``.
    prior : {"none", "global"}
        What local weights are pulled to: 0 as in the paper, or the global model, which makes few neighbors safe.
    prior_strength : float
        How much, beside the learner's own penalty λ.
    scale, missing
        How features are prepared for a linear learner; see `SingleRanker`.
    n_jobs : int, optional
        Threads for the models of the offline modes; as many as there are cores where not given.

    Attributes
    ----------
    qid_ : array
        The judged queries, in the order of neighbor positions; with cells, the one nearest to the center of each.
    global_ : Learner
        The model of all of them.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> KnnRanker(n_neighbors=10).fit(camps).score(camps)
    1.0
    """

    def __init__(
        self,
        n_neighbors: int = 400,
        *,
        mode: Mode = "online",
        radius: float | None = None,
        learner: str | Learner = "rankrls",
        describe: Spec | Describer = "summaries",
        reference: str | int | None = None,
        index: str | NeighborIndex = "auto",
        cells: int | None = None,
        neighbor_weights: str = "uniform",
        prior: Prior = "none",
        prior_strength: float = 0.1,
        scale: Scale = "standard",
        missing: Missing = "error",
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.radius = radius
        self.learner = learner
        self.describe = describe
        self.reference = reference
        self.index = index
        self.cells = cells
        self.neighbor_weights = neighbor_weights
        self.prior = prior
        self.prior_strength = prior_strength
        self.scale = scale
        self.missing = missing
        self.n_jobs = n_jobs

    def _fit_local(self, queries: QuerySet, points: Float32) -> None:
        self.qid_ = queries.qid
        self.index_ = make_index(self.index, *points.shape).fit(points)
        self._measure_distances()
        self._learn_offline()

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.mode not in ("online", "offline-1", "offline-2"):
            raise ParameterError(f"mode must be 'online', 'offline-1' or 'offline-2', got {self.mode!r}")
        whole = isinstance(self.n_neighbors, Integral) and not isinstance(self.n_neighbors, bool)
        if not whole or self.n_neighbors < 1:
            raise ParameterError(f"n_neighbors must be a whole number from 1, got {self.n_neighbors!r}")
        if self.cells is not None and self.mode != "online":
            raise ParameterError(f"cells need mode='online', got mode={self.mode!r}: set one of them")
        if self.n_jobs is not None and self.n_jobs != -1 and self.n_jobs < 1:
            raise ParameterError(f"n_jobs must be at least 1, or -1 or None for all cores, got {self.n_jobs}")
        if self.radius is not None and not (isinstance(self.radius, Real) and self.radius > 0):
            raise ParameterError(f"radius must be a positive number, got {self.radius!r}")

    def _measure_distances(self) -> None:
        """How far judged queries lie from their nearest other one: what is usual, so that `explain` can say."""
        m = len(self.qid_)
        sample = np.linspace(0, m - 1, min(m, _SAMPLE)).astype(np.int64)
        distances, _ = self.index_.query(self.index_.points_[sample], min(2, m))
        self.usual_distances_ = np.sort(distances[:, -1])

    def _learn_offline(self) -> None:
        self.offline_ = None
        if self.mode == "online":
            return
        # Threads, since search and learning are compiled code without the interpreter's lock. The models do not depend
        # on how many there are.
        threads = Threads(os.cpu_count() if self.n_jobs in (None, -1) else self.n_jobs)
        learned = list(map_ordered(current_executor(threads), self._learn_near, in_blocks(self.index_.points_)))
        models = [model for _, some in learned for model in some]
        self.offline_ = OfflineModels(models, Neighborhoods.concat(near for near, _ in learned), self.memory_.pairs)

    def _learn_near(self, points: Float32) -> tuple[Neighborhoods, list[Learner]]:
        """The neighbors of each point and the model learned from them."""
        near = self.near(points)
        return near, self._learn_each(near, near.weights(self.neighbor_weights, self.radius))

    def near(self, points: Float32, n_neighbors: int | None = None) -> Neighborhoods:
        """The judged queries, or cells of them, near each point: the nearest `n_neighbors`, or all in the radius."""
        if self.radius is not None:
            return Neighborhoods.within(self.index_, points, self.radius)
        if self.cells is not None:
            return nearest_cells(self.index_, self.memory_.counts, points, n_neighbors or self.n_neighbors)
        return Neighborhoods.nearest(self.index_, points, min(n_neighbors or self.n_neighbors, len(self.qid_)))

    def _models(self, queries: QuerySet, points: Float32) -> list[Learner]:  # noqa: ARG002
        if self.mode != "online":
            chosen = self.offline_choice(points)
            return [self.global_ if model < 0 else self._offline.models[model] for model in chosen]
        return [model for some in in_blocks(points) for model in self._learn_near(some)[1]]

    def offline_choice(self, points: Float32) -> list[int]:
        """For each point the judged query whose model ranks it, in an offline mode; -1 where none is near."""
        if self.mode == "offline-2":
            return [int(near[0]) if len(near) else -1 for some in in_blocks(points) for near, _ in self.near(some, 1)]
        return [self._offline.most_overlapping(members) for some in in_blocks(points) for members, _ in self.near(some)]

    def _score_and_place(self, queries: QuerySet) -> Scored:
        points = self._points(queries)
        if self.mode == "online":
            learned = [self._learn_near(some) for some in in_blocks(points)]
            near = Neighborhoods.concat(some for some, _ in learned)
            models = [model for _, some in learned for model in some]
        else:
            near, models = self.near(points, 1), self._models(queries, points)
        return Scored(self._score_by(models, queries), self._novelty(near))

    def _novelty(self, near: Neighborhoods) -> Float64:
        """The distance to the nearest member, in units of what is usual; infinite where there is none."""
        nearest = np.array([distances[0] if len(distances) else np.inf for _, distances in near])
        novelty: Float64 = nearest / self._unit_distance
        return novelty

    @property
    def farthest(self) -> float:
        """The novelty of the judged query that is farthest from all others: beyond it nothing was ever judged."""
        return float(self.usual_distances_[-1] / self._unit_distance)

    @property
    def _unit_distance(self) -> float:
        """What 99% of the judged queries have to their nearest other at most."""
        usual = self.usual_distances_[(len(self.usual_distances_) - 1) * 99 // 100]
        # Where all judged queries lie on one point, everything beside it is far.
        return float(max(usual, np.finfo(np.float32).tiny))

    def explain(
        self,
        X: ArrayLike | QuerySet,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
    ) -> list[Explanation]:
        """Why each query is ranked as it is: its neighbors, its weights against the global ones, how far it is."""
        queries = self._take(X, None, qid, group, query_vectors)
        weights = self._weights(queries) if self.learner_.linear else [None] * len(queries)
        points = self._points(queries)
        near = list(self.near(points) if self.mode == "online" else self._taught(points))
        return [explain_query(self, queries, query, *near[query], weights[query]) for query in range(len(queries))]

    def _taught(self, points: Float32) -> Iterator[tuple[Int64, Float64]]:
        """The judged queries that taught the model chosen for each point, nearest to the point first."""
        for point, model in zip(points, self.offline_choice(points), strict=True):
            members = self._offline.neighbors_of(model) if model >= 0 else np.empty(0, dtype=np.int64)
            distances = np.linalg.norm(self.index_.points_[members].astype(np.float64) - point, axis=1)
            order = np.argsort(distances, kind="stable")
            yield members[order], distances[order]

    @property
    def _offline(self) -> OfflineModels:
        if self.offline_ is None:
            raise ParameterError("there are no models in advance: fit again with mode='offline-1' or 'offline-2'")
        return self.offline_

    def _learn_again(self) -> Self:
        if isinstance(self.memory_, CellMemory):
            self.qid_ = self.memory_.names
        else:
            self._measure_distances()
        self.global_ = self.memory_.learn(np.arange(len(self.qid_)), np.ones(len(self.qid_)))
        self._learn_offline()
        return self

    def get_state(self) -> State:
        """Everything learned."""
        state = super().get_state() | nest(index=self.index_.get_state())
        state |= {"qid": self.qid_, "usual_distances": self.usual_distances_}
        return state if self.offline_ is None else state | nest(offline=self.offline_.get_state())

    def set_state(self, state: State) -> Self:
        """Take over everything learned."""
        super().set_state(state)
        self.index_ = restore_index(self.index, unnest(state, "index"))
        self.qid_, self.usual_distances_ = state["qid"], state["usual_distances"]
        offline = unnest(state, "offline")
        self.offline_ = OfflineModels.from_state(self.learner_, offline) if offline else None
        return self
