"""KNN: rank every query by a model learned from the judged queries most like it (Geng et al., SIGIR 2008)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, Self, Unpack

import numba
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float32, Float64, Int64, State
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError
from kinrank.kin import Describer
from kinrank.kin.blocks import Spec
from kinrank.kin.encoders import Encoder, EncoderSpec
from kinrank.kin.indexes import NeighborIndex
from kinrank.kin.indexes.base import Neighborhoods
from kinrank.learn._prepare import Missing, Scale
from kinrank.learn.base import Learner, LinearLearner
from kinrank.learn.ranksvm import RankSVM
from kinrank.parallel import Threads, current_executor, map_ordered, n_threads_of
from kinrank.rankers._local.choose import NEIGHBORS, assign_folds, best_n_neighbors
from kinrank.rankers._local.model import LocalModel, Prior
from kinrank.rankers._local.nearest import NeighborRanker
from kinrank.rankers._local.neighbor_model import EditableModel, Sources, in_blocks, join_learned
from kinrank.rankers._local.texts import encode_texts, encoder_state, fit_encoder, restore_encoder
from kinrank.rankers._local.training_sets import StatisticsTrainingSet
from kinrank.rankers.base import Prediction
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.intake import JudgedArrays, takes_arrays
from kinrank.store import nest, unnest

Mode = Literal["online", "offline-1", "offline-2"]

_FOLDS = 4


# --- models learned in advance, one per judged query, and the choice among them (Geng et al. 2008, 3.3) ---------------


@dataclass(eq=False, repr=False)
class OfflineModels:
    """The local model h_i of every judged query i, and the neighbors it was learned from."""

    models: list[Learner]
    """h_i, the models."""
    near: Neighborhoods
    """N(q_i), the neighbors that each model was learned from."""
    pairs: Float64
    """|S_q|, the number of pairs of each judged query."""

    @cached_property
    def _models_by_query(self) -> csr_array:
        """For each judged query, the models learned from it.

        This inverted index makes the largest overlap cost k lists instead of a scan over m sets of k.
        """
        n = len(self.models)
        sets = csr_array((np.ones(len(self.near.members), np.int8), self.near.members, self.near.starts), shape=(n, n))
        return sets.T.tocsr()

    def most_overlapping(self, neighbors: Int64) -> int:
        """Return i* of Eq. 1: the first model that shares most pairs with S_N(q), or -1 if none shares any."""
        shared = self.overlaps(neighbors)
        best = int(np.argmax(shared))
        return best if shared[best] > 0 else -1

    def overlaps(self, neighbors: Int64) -> Float64:
        """Return |S_N(q_i) ∩ S_N(q)|, counted in pairs, for every i."""
        shared = np.zeros(len(self.models))
        models = self._models_by_query
        _count_pairs(neighbors, self.pairs, models.indices, models.indptr, shared)
        return shared

    def neighbors_of(self, model: int) -> Int64:
        """Return the judged queries that a model was learned from."""
        return self.near.members[self.near.starts[model] : self.near.starts[model + 1]]

    def get_state(self) -> State:
        """Return plain arrays to save."""
        near = self.near
        sets: State = {"members": near.members, "starts": near.starts, "distances": near.distances, "pairs": self.pairs}
        if isinstance(self.models[0], LinearLearner):
            return sets | {"coef": np.array([m.coef_ for m in self.models if isinstance(m, LinearLearner)])}
        return sets | nest(**{f"model{i}": model.get_state() for i, model in enumerate(self.models)})

    @classmethod
    def from_state(cls, learner: Learner, state: State) -> Self:
        """Restore from the arrays of `get_state`."""
        if "coef" in state:
            models = [learner.with_weights(coef) for coef in state["coef"] if isinstance(learner, LinearLearner)]
        else:
            models = [clone(learner).set_state(unnest(state, f"model{i}")) for i in range(len(state["starts"]) - 1)]
        return cls(models, Neighborhoods(state["members"], state["starts"], state["distances"]), state["pairs"])


@numba.njit(cache=True, nogil=True)
def _count_pairs(neighbors, pairs, models_of, starts, shared):  # type: ignore[no-untyped-def]
    """Add the pairs of each neighbor to every model learned from it."""
    for neighbor in neighbors:
        for at in range(starts[neighbor], starts[neighbor + 1]):
            shared[models_of[at]] += pairs[neighbor]


# --- the ranker -------------------------------------------------------------------------------------------------------


class KnnRanker(NeighborRanker):
    """A model per query, learned from its nearest judged queries (Geng et al. 2008, sections 3.2 and 3.3).

    Parameters
    ----------
    n_neighbors : int or "auto"
        k; all judged queries if there are fewer. ``"auto"`` tries 10 to 800 on held-out queries.
    mode : {"online", "offline-1", "offline-2"}
        ``"online"`` learns the model when the query arrives: with RankRLS a sum and a solve. The offline modes learn
        one model per judged query in advance. ``"offline-1"`` uses the one whose training set shares most pairs with
        the query's neighbors (Figure 5, Eq. 1), ``"offline-2"`` that of the single nearest judged query (Figure 6).
    radius : float, optional
        Learn from all judged queries within this distance instead of from `n_neighbors`. A query without any is
        ranked by the global model.
    learner : {"rankrls", "ranksvm", "lambdamart"} or Learner
        Learner of the local models. RankRLS makes them affordable. LambdaMART grows its trees anew for every query,
        which is for studies, not for serving.
    describe : str, list, dict or Describer
        How a query becomes a point: ``"mean"`` (the paper's), ``"summaries"``, ``"summaries+text"``...; see
        `kinrank.kin.Describer`. ``"auto"``: 46 principal components of the summaries of its candidates and, if
        there are texts or vectors, of its text.
    encoder : str, object or function, optional
        How a query's text becomes a vector: ``"ngrams"`` (built in), ``"model2vec:NAME"``,
        ``"sentence-transformers:NAME"``, ``"fastembed:NAME"``, an object with ``encode(list of str)``, or a function;
        see `kinrank.kin.encoders.make_encoder`. Used if the queries have texts and no vectors.
    reference : str or int, optional
        The feature (BM25 in the paper) whose best candidates describe the query. Without one, the first candidates
        do, in the order given. A `Describer` has its own: set it there.
    index : str or NeighborIndex
        ``"auto"`` chooses by size in `fit`.
    neighbor_weights : str
        Decreasing with distance: ``"gaussian"``, ``"tricube"``, ``"epanechnikov"``, ``"inverse"``; or ``"uniform"``
        as in the paper.
    prior : {"none", "global"}
        What local weights are pulled to: the global model, which makes few neighbors safe, or 0 as in the paper.
        A learner that is not linear needs ``"none"``.
    prior_strength : float
        Strength of the pull, in addition to the learner's own penalty λ.
    scale, missing
        How features are prepared for a linear learner; see `SingleRanker`.
    group_column : str, optional
        A query column for ``n_neighbors="auto"``: queries that share a value are never apart when some are held out.
    n_jobs : int, optional
        Threads for the models of the offline modes; all cores by default.

    Attributes
    ----------
    n_neighbors_ : int
        k, as chosen or given.
    qid_ : array
        The judged queries, in the order of neighbor positions.
    global_ : Learner
        The model of all of them.
    encoder_ : Encoder or None
        The encoder, fitted on the training queries if it learns. None if there were no texts, or vectors were given.

    Notes
    -----
    The defaults are the settings that rank best on the data we measured (docs/knn.md). The paper's ranker is
    `KnnRanker.as_published`; with all judged queries as neighbors it equals `SingleRanker`.

    See Also
    --------
    CellRanker : The same from sums over cells of similar queries, for any number of judged queries.

    Examples
    --------
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(n_queries=60, seed=0)
    >>> KnnRanker(n_neighbors=10).fit(camps).score(camps)
    1.0
    """

    _capabilities: ClassVar[Capabilities] = Capabilities(
        explains=True,
        weights=True,
        novelty=True,
        adds=True,
        forgets=True,
        replaces=True,
        vectors=True,
        text=True,
        missing=True,
    )
    model_: EditableModel
    encoder_: Encoder | None

    def __init__(
        self,
        n_neighbors: int | Literal["auto"] = "auto",
        *,
        mode: Mode = "online",
        radius: float | None = None,
        learner: str | Learner = "rankrls",
        describe: Spec | Describer = "auto",
        encoder: EncoderSpec | None = "ngrams",
        reference: str | int | None = None,
        index: str | NeighborIndex = "auto",
        neighbor_weights: str = "gaussian",
        prior: Prior = "global",
        prior_strength: float = 0.1,
        scale: Scale = "standard",
        missing: Missing = "mean",
        group_column: str | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.mode = mode
        self.radius = radius
        self.learner = learner
        self.describe = describe
        self.encoder = encoder
        self.reference = reference
        self.index = index
        self.neighbor_weights = neighbor_weights
        self.prior = prior
        self.prior_strength = prior_strength
        self.scale = scale
        self.missing = missing
        self.group_column = group_column
        self.n_jobs = n_jobs

    @classmethod
    def as_published(
        cls, *, reference: str | int | None = "bm25", top: int = 50, n_neighbors: int = 400, **settings: Any
    ) -> Self:
        """Return the ranker of the paper: KNN Online of Figure 3, or the offline modes of section 3.3.

        A query is the mean of its `top` documents by the reference (section 3.2.1), its neighbors are the nearest by
        Euclidean distance and count alike, and Ranking SVM with the plain hinge and λ = 0.01 (section 4.1.2) learns
        from their pairs. Values are used as they are, both in distances and in learning. docs/research/as-published.md
        lists what the paper leaves open, and what of it needs the data of a search engine.

        Parameters
        ----------
        reference : str or int
            The feature that ranks candidates today; BM25 in the paper.
        top : int
            T, the number of documents that describe a query.
        n_neighbors : int
            k: 400 of 1,500 judged queries, 800 of 3,000 in the paper.
        settings
            Any others, such as ``mode="offline-1"`` (Figure 5, Eq. 1), ``mode="offline-2"`` (section 3.3.2, Figure 6),
            or ``radius`` (future work in section 5).

        Examples
        --------
        >>> KnnRanker.as_published(reference="score", n_neighbors=50, mode="offline-1")
        KnnRanker(describe=Describer(reference='score', standardize=False),
                  encoder=None, learner=RankSVM(loss='hinge'), mode='offline-1',
                  n_neighbors=50, neighbor_weights='uniform', prior='none',
                  scale='none')
        """
        published: dict[str, Any] = {
            "learner": RankSVM(loss="hinge"),
            "describe": Describer.as_published(reference, top),
        }
        published |= {"neighbor_weights": "uniform", "prior": "none", "scale": "none", "encoder": None}
        return cls(n_neighbors, **published | settings)

    # --- fitting --------------------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.mode not in ("online", "offline-1", "offline-2"):
            raise ParameterError(f"mode must be 'online', 'offline-1' or 'offline-2', got {self.mode!r}")
        n_threads_of(self.n_jobs)  # raises if it is invalid

    def _fit(self, queries: QuerySet) -> None:
        self._check_settings()
        self.encoder_ = fit_encoder(self.encoder, queries)
        queries = self.encoded(queries)
        local = LocalModel.fit(queries, self)
        self.n_neighbors_ = self._choose_neighbors(queries, local)
        self.model_ = EditableModel.of(local, queries, self.index)
        self._learn_offline()

    def _choose_neighbors(self, queries: QuerySet, local: LocalModel) -> int:
        """Return k, chosen on held-out queries if it is not set."""
        if self.n_neighbors != "auto":
            return int(self.n_neighbors)
        if self.radius is not None:
            return len(queries)
        if not isinstance(local.training_set, StatisticsTrainingSet):
            raise ParameterError(f"n_neighbors='auto' needs learner='rankrls', got {self.learner!r}: set a number")
        fold = assign_folds(queries, _FOLDS, self.group_column, seed=0)
        if fold is None:
            return NEIGHBORS[0]
        online: dict[str, Any] = {"n_neighbors": NEIGHBORS[0], "encoder": None, "mode": "online"}

        def without(held_out: int) -> KnnRanker:
            fitted: KnnRanker = clone(self).set_params(**online).fit(queries[fold != held_out])
            return fitted

        return best_n_neighbors(without, queries, fold, len(queries) - int(np.bincount(fold).max()))

    def _learn_offline(self) -> None:
        self.offline_ = None
        if self.learns_online:
            return
        # Threads, because search and learning are compiled code that releases the interpreter's lock. The models do
        # not depend on how many there are.
        executor = current_executor(Threads(n_threads_of(self.n_jobs)))
        learn = partial(self.model_.learn_near, settings=self)
        near, models = join_learned(map_ordered(executor, learn, in_blocks(self.model_.index.points_)))
        self.offline_ = OfflineModels(models, near, self.model_.training_set.pairs)

    @property
    def learns_online(self) -> bool:
        """Whether the model of a query is learned when the query arrives."""
        return self.mode == "online"

    # --- ranking --------------------------------------------------------------------------------------------------

    def encoded(self, queries: QuerySet) -> QuerySet:
        """Return the queries with a vector each, encoded from their texts unless they have vectors already."""
        return encode_texts(self.encoder_, queries)

    def _models(self, points: Float32) -> list[Learner]:
        return super()._models(points) if self.learns_online else self._offline_models(self.offline_choice(points))

    def _offline_models(self, chosen: list[int]) -> list[Learner]:
        return [self.global_ if model < 0 else self.offline_models.models[model] for model in chosen]

    def offline_choice(self, points: Float32) -> list[int]:
        """Return the judged query whose model ranks each point in an offline mode; -1 if none is near."""
        blocks = in_blocks(points)
        if self.mode == "offline-2":
            nearest = [positions for block in blocks for positions, _ in self.near(block, 1)]
            return [int(positions[0]) if len(positions) else -1 for positions in nearest]
        return [self.offline_models.most_overlapping(members) for block in blocks for members, _ in self.near(block)]

    @property
    def offline_models(self) -> OfflineModels:
        """The models learned in advance."""
        if self.offline_ is None:
            raise ParameterError("there are no models in advance: fit again with mode='offline-1' or 'offline-2'")
        return self.offline_

    def _predict_with_novelty(self, queries: QuerySet) -> Prediction:
        if self.learns_online:
            return super()._predict_with_novelty(queries)
        points = self.points(queries)
        scores = self.model_.scores(self._models(points), queries)
        return Prediction(scores, self.model_.novelty(self.near(points, 1)))

    def _learned_from(self, points: Float32) -> tuple[Sources, list[Learner]]:
        if self.learns_online:
            return super()._learned_from(points)
        chosen = self.offline_choice(points)
        return self._offline_sources(points, chosen), self._offline_models(chosen)

    def _offline_sources(self, points: Float32, chosen: list[int]) -> Sources:
        for point, model in zip(points, chosen, strict=True):
            members = self.offline_models.neighbors_of(model) if model >= 0 else np.empty(0, dtype=np.int64)
            distances = np.linalg.norm(self.model_.index.points_[members].astype(np.float64) - point, axis=1)
            order = np.argsort(distances, kind="stable")
            yield members[order], distances[order]

    # --- judgments that come and go -------------------------------------------------------------------------------

    @takes_arrays
    def add(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Learn from further judged queries without fitting again.

        Scaling and description stay as fitted. Given those, every local model and the global one equal what fitting
        on all queries would give. Do not call this while another thread predicts.
        """
        queries = self._queries(X, y, **arrays)
        self.model_.add(self.encoded(queries))
        self.names_ = self.names_.added(queries)
        return self._learn_again()

    def check_learnable(self, queries: QuerySet) -> None:
        """Raise `DataError` if `add` could not learn these queries."""
        self.check_features(queries.feature_names)
        self.model_.check(self.encoded(queries))

    def remove(self, qid: ArrayLike) -> Self:
        """Forget judged queries by id, as if they had never been seen, except in scaling and description."""
        check_is_fitted(self)
        self.model_.remove(qid)
        return self._learn_again()

    def prepare_to_learn(self) -> Self:
        """Compute what the first `add` or `remove` after loading would take longer for."""
        self.model_.prepare_to_learn()
        return self

    def _learn_again(self) -> Self:
        if not self.learns_online:
            self.model_ = self.model_.compacted(self.index)
            self._learn_offline()
        return self

    def copy(self) -> Self:
        """Return a fitted copy that shares the learned arrays; what it learns later, it learns alone."""
        other = super().copy()
        other.model_ = self.model_.copy()
        return other

    @property
    def n_unseen_(self) -> int:
        """The number of judged queries that await a new fit: none, all models learn at once."""
        return 0

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_]:
        """Return which of these queries, by id, are judged queries of this ranker."""
        check_is_fitted(self)
        return np.isin(queries.qid.astype(np.str_), self.qid_.astype(np.str_))

    # --- persistence ----------------------------------------------------------------------------------------------

    def get_state(self) -> State:
        """Return everything learned."""
        state = self.model_.compacted(self.index).get_state() | encoder_state(self.encoder_)
        state |= {"n_neighbors": np.array(self.n_neighbors_)}
        return state if self.offline_ is None else state | nest(offline=self.offline_.get_state())

    def set_state(self, state: State) -> Self:
        """Restore everything learned."""
        self.model_ = EditableModel.restore(self, state, self.index)
        self.encoder_ = restore_encoder(self.encoder, state)
        self.n_neighbors_ = int(state["n_neighbors"])
        offline = unnest(state, "offline")
        self.offline_ = OfflineModels.from_state(self.learner_, offline) if offline else None
        return self
