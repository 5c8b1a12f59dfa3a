"""A local model with an index of its judged queries: finds those near a query, and learns from them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32, Float64, GrowingRows, Int64, State
from kinrank.data.normalization import normalization_of, normalize
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.kin.indexes import NeighborIndex, make_index, restore_index
from kinrank.kin.indexes.base import GrowingIndex, Neighborhoods
from kinrank.learn.base import Learner
from kinrank.rankers._local.explanation import Explanation, candidate_moments
from kinrank.rankers._local.model import LocalModel, LocalSettings
from kinrank.rankers._local.training_sets import EditableTrainingSet
from kinrank.store import nest, unnest

# --- the judged queries of a ranker by id, at numbered positions ------------------------------------------------------


class _AddedPositions:
    """The latest position of each added id, for the copy that has `n` added ids."""

    def __init__(self) -> None:
        self.of: dict[Any, int] = {}
        self.n = 0


class JudgedQueries:
    """Ids of judged queries. Adding and removing some costs the same however many there are.

    A removed query leaves its position empty. Copies made by `copy.copy` change independently.

    Examples
    --------
    >>> judged = JudgedQueries(np.array(["a", "b"]))
    >>> judged.add(np.array(["ccc"]))
    >>> judged.remove(judged.find(["b"]))
    >>> judged.qid.tolist(), judged.find(["a", "b", "ccc"]).tolist(), len(judged)
    (['a', 'ccc'], [0, -1, 2], 2)
    """

    def __init__(self, qid: NDArray[Any]) -> None:
        self._fitted = qid
        self._order: list[Int64] = []  # of the fitted ids, sorted when it is needed; copies share it
        self._added = GrowingRows(qid[:0])
        self._positions = _AddedPositions()
        self._gone = np.zeros(0, dtype=np.bool_)  # by position, as far as any is gone
        self._n_gone = 0

    def __len__(self) -> int:
        return self.n_positions - self._n_gone

    @property
    def n_positions(self) -> int:
        """The number of positions, with the empty ones."""
        return len(self._fitted) + len(self._added)

    @property
    def changed(self) -> bool:
        """Whether any query was added or removed."""
        return bool(len(self._added) or self._n_gone)

    @property
    def qid(self) -> NDArray[Any]:
        """The ids in the order of positions."""
        if not self.changed:
            return self._fitted
        everything = np.concatenate([self._fitted, self._added.rows])
        ids: NDArray[Any] = everything[self.positions]
        return ids

    @property
    def positions(self) -> Int64:
        """The positions that are not empty."""
        there = np.ones(self.n_positions, dtype=np.bool_)
        there[: len(self._gone)] = ~self._gone
        return np.flatnonzero(there)

    def at(self, positions: Int64) -> NDArray[Any]:
        """Return the ids at some positions."""
        if not len(self._added):
            ids: NDArray[Any] = self._fitted[positions]
            return ids
        n = len(self._fitted)
        added = positions >= n
        ids = np.empty(len(positions), dtype=np.promote_types(self._fitted.dtype, self._added.rows.dtype))
        ids[~added] = self._fitted[positions[~added]]
        ids[added] = self._added.rows[positions[added] - n]
        return ids

    def find(self, qid: ArrayLike) -> Int64:
        """Return the position of each id; -1 for unknown ones."""
        wanted = np.atleast_1d(np.asarray(qid))
        positions = self._find_fitted(wanted)
        added = self._positions_of_added()
        for place, identifier in enumerate(wanted.tolist()) if added else ():
            positions[place] = added.get(identifier, positions[place])
        may_be_gone = (positions >= 0) & (positions < len(self._gone))
        positions[may_be_gone] = np.where(self._gone[positions[may_be_gone]], -1, positions[may_be_gone])
        return positions

    def _find_fitted(self, wanted: NDArray[Any]) -> Int64:
        fitted = self._fitted
        if wanted.dtype.kind != fitted.dtype.kind or not len(fitted):
            comparable = wanted.dtype.kind in "iu" and fitted.dtype.kind in "iu" and len(fitted)
            if not comparable:
                return np.full(len(wanted), -1)
        if not self._order:
            self._order.append(np.argsort(fitted, kind="stable"))
        order = self._order[0]
        # In the type of the fitted ids: else NumPy would convert all of them. Ids that do not fit are not among them.
        same = wanted.astype(fitted.dtype)
        place = np.minimum(np.searchsorted(fitted, same, sorter=order), len(fitted) - 1)
        positions = order[place]
        return np.where(fitted[positions] == wanted, positions, -1)

    def _positions_of_added(self) -> dict[Any, int]:
        """Return the positions of the added ids; built again if another copy has added other ones."""
        if self._positions.n != len(self._added):
            self._positions = _AddedPositions()
            self._note(self._added.rows, 0)
        return self._positions.of

    def _note(self, qid: NDArray[Any], start: int) -> None:
        first = len(self._fitted) + start
        self._positions.of.update((identifier, first + i) for i, identifier in enumerate(qid.tolist()))
        self._positions.n = start + len(qid)

    def add(self, qid: NDArray[Any]) -> None:
        """Append ids that are not known."""
        self._positions_of_added()
        self._note(qid, len(self._added))
        self._added = self._added.append(qid)

    def remove(self, positions: Int64) -> None:
        """Empty some positions, each of which is known."""
        gone = np.zeros(max(len(self._gone), int(positions.max(initial=-1)) + 1), dtype=np.bool_)
        gone[: len(self._gone)] = self._gone
        gone[positions] = True
        self._gone, self._n_gone = gone, self._n_gone + len(positions)


# --- a local model with an index of its judged queries ----------------------------------------------------------------


_SAMPLE = 1000

Sources = Iterable[tuple[Int64, Float64]]
"""What each model was learned from: positions and their distances, nearest first."""


class _NeighborSettings(LocalSettings, Protocol):
    """The settings of a ranker that learns from neighbors."""

    radius: float | None
    neighbor_weights: str

    @property
    def k(self) -> int:
        """How many judged queries a local model learns from."""
        ...


@dataclass(frozen=True, eq=False)
class LocalPrediction:
    """Scores of queries by their local models and by the global one, and where they come from."""

    scores: Float64
    global_scores: Float64
    """The scores by the local models and by the global one; shape (rows,)."""
    novelty: Float64
    """The distance of each query to the nearest judged query; see `Prediction`; shape (queries,)."""
    near: Neighborhoods
    """What the model of each query was learned from."""
    models: list[Learner]
    """The model of each query."""


@dataclass(eq=False)
class NeighborModel(LocalModel):
    """A local model whose judged queries, or cells of them, are the points of an index."""

    index: NeighborIndex
    """The points of the positions of the training set."""
    judged: JudgedQueries
    """The judged query at each position; for a cell, the one nearest to its center."""
    usual_distances: Float64
    """Sampled distances of the judged queries of the fit to their nearest other one, ascending."""

    def near(self, points: Float32, k: int, radius: float | None = None) -> Neighborhoods:
        """Return the positions near each point: those of the nearest `k` queries, or all in the radius."""
        if radius is not None:
            return Neighborhoods.within(self.index, points, radius)
        return self.training_set.nearest(self.index, points, k)

    def learn_near(self, points: Float32, settings: _NeighborSettings) -> tuple[Neighborhoods, list[Learner]]:
        """Return the neighbors of each point and the model learned from them."""
        near = self.near(points, settings.k, settings.radius)
        return near, self.learn_each(near, settings, near.weights(settings.neighbor_weights, settings.radius))

    def learn(self, points: Float32, settings: _NeighborSettings) -> tuple[Neighborhoods, list[Learner]]:
        """Return the neighbors of any number of points and the models learned from them."""
        return join_learned(self.learn_near(block, settings) for block in in_blocks(points))

    def models(self, points: Float32, settings: _NeighborSettings) -> list[Learner]:
        """Return only the models of any number of points, so that few neighbors are in memory at once."""
        return [model for block in in_blocks(points) for model in self.learn_near(block, settings)[1]]

    def predict(self, queries: QuerySet, settings: _NeighborSettings) -> LocalPrediction:
        """Score queries by models learned for them and by the global one; prepare them once."""
        near, models = self.learn(self.points(queries), settings)
        prepared = self.prepared(queries)
        by_global = self.global_model.predict(prepared)
        return LocalPrediction(self.scores(models, queries, prepared), by_global, self.novelty(near), near, models)

    def novelty(self, near: Neighborhoods) -> Float64:
        """Return the distance to the nearest neighbor in units of `_unit_distance`; infinite without neighbors."""
        nearest = np.array([distances[0] if len(distances) else np.inf for _, distances in near])
        novelty: Float64 = nearest / self._unit_distance
        return novelty

    @property
    def highest_novelty(self) -> float:
        """The novelty of the judged query that is farthest from all others. Beyond it nothing was ever judged."""
        return float(self.usual_distances[-1] / self._unit_distance)

    @property
    def _unit_distance(self) -> float:
        """The distance within which 99% of the judged queries have their nearest other one."""
        usual = self.usual_distances[(len(self.usual_distances) - 1) * 99 // 100]
        # If all judged queries lie on one point, everything else is far.
        return float(max(usual, np.finfo(np.float32).tiny))

    def explain(
        self, queries: QuerySet, sources: Sources, models: Sequence[Learner], settings: _NeighborSettings
    ) -> list[Explanation]:
        """Explain queries by their models and the positions that these were learned from, nearest first."""
        weights: Sequence[Float64 | None] = [None] * len(models)
        global_weights = None
        if self.learner.linear:
            weights, (global_weights,) = list(self.raw_weights(models)), self.raw_weights([self.global_model])
        limit = np.inf if settings.radius is not None else settings.k
        normalization, X = normalization_of(settings.scale), queries.X
        if normalization is not None:
            X = normalize(X, queries.offsets, normalization)
        explained = []
        for query, ((positions, distances), own_weights) in enumerate(zip(sources, weights, strict=True)):
            nearest = distances[0] if len(distances) else np.inf
            held = np.minimum(np.cumsum(self.training_set.counts[positions]), limit)
            explained.append(
                Explanation(
                    qid=queries.qid[query].item(),
                    neighbors=self.judged.at(positions),
                    distances=distances,
                    counts=np.diff(held, prepend=0.0),
                    unusual=float(np.searchsorted(self.usual_distances, nearest) / len(self.usual_distances)),
                    feature_names=queries.feature_names,
                    weights=own_weights,
                    global_weights=global_weights,
                    spread=candidate_moments(X[queries.offsets[query] : queries.offsets[query + 1]])[1],
                )
            )
        return explained

    def get_state(self) -> State:
        """Return everything learned."""
        arrays: dict[str, NDArray[Any]] = {"qid": self.judged.qid, "usual_distances": self.usual_distances}
        return super().get_state() | nest(index=self.index.get_state()) | arrays


def fit_index(index: str | NeighborIndex, points: Float32) -> NeighborIndex:
    """Return a new index of points; ``"auto"`` chooses by their number."""
    return make_index(index, *points.shape).fit(points)


def measure_distances(index: NeighborIndex) -> Float64:
    """Sample how far judged queries are from their nearest other one.

    The scale of distances stays that of the fit, as the description does. Measured again on other queries it would
    move, and with it the novelty of every query.
    """
    m = len(index.points_)
    sample = np.linspace(0, m - 1, min(m, _SAMPLE)).astype(np.int64)
    distances, _ = index.query(index.points_[sample], min(2, m))
    return np.sort(distances[:, -1])


def join_learned(parts: Iterable[tuple[Neighborhoods, list[Learner]]]) -> tuple[Neighborhoods, list[Learner]]:
    """Join the neighbors and models of several blocks of points."""
    learned = list(parts)
    return Neighborhoods.concat(near for near, _ in learned), [model for _, models in learned for model in models]


def in_blocks(points: Float32, size: int = 1024) -> Sequence[Float32]:
    """Split points into blocks, so that the neighbors of many queries are never in memory at once."""
    return [points[start : start + size] for start in range(0, len(points), size)]


# --- judged queries that come and go: ids, index and statistics change together ---------------------------------------


@dataclass(eq=False)
class EditableModel(NeighborModel):
    """A local model that keeps every judged query, and learns and forgets single ones.

    A removed query leaves its position empty until `compact`. What a copy learns later, it learns alone.
    """

    training_set: EditableTrainingSet

    @classmethod
    def of(cls, local: LocalModel, queries: QuerySet, index: str | NeighborIndex) -> Self:
        """Index the queries that a local model was fitted on."""
        built = fit_index(index, local.points(queries))
        judged, usual_distances = JudgedQueries(queries.qid), measure_distances(built)
        return cls(**vars(local), index=built, judged=judged, usual_distances=usual_distances)

    def add(self, queries: QuerySet) -> None:
        """Learn further judged queries; nothing changes if they cannot be learned."""
        known = self.judged.find(queries.qid) >= 0
        if known.any():
            raise DataError(f"query {queries.qid[known][0].item()!r} is known already: remove it first, then add it")
        example = self.judged.at(np.zeros(1, dtype=np.int64))
        if queries.qid.dtype.kind != example.dtype.kind:
            raise DataError(f"the judged queries have ids like {example[0].item()!r}, got {queries.qid[0].item()!r}")
        # Everything that may raise comes before the first change.
        points, prepared = self.points(queries), queries.replace(y=queries.grades, X=self.prepared(queries))
        self.training_set.check(prepared)
        index = self._growing_index()
        index.add(points)
        self.training_set.add(prepared)
        self.judged.add(queries.qid)
        self.index = index
        self._learn_again()

    def check(self, queries: QuerySet) -> None:
        """Raise `DataError` if `add` could not learn these queries."""
        self.points(queries)
        self.training_set.check(queries.replace(X=self.prepared(queries)))

    def remove(self, qid: ArrayLike) -> None:
        """Forget judged queries by id."""
        wanted = np.atleast_1d(np.asarray(qid))
        positions = self.judged.find(wanted)
        if (positions < 0).any():
            unknown = wanted[positions < 0][0].item()
            raise DataError(f"query {unknown!r} is not among the {len(self.judged)} judged queries")
        positions = np.unique(positions)
        if len(positions) == len(self.judged):
            raise DataError("cannot remove every judged query: nothing would be left to learn from")
        index = self._growing_index()
        index.exclude(positions)
        self.training_set.forget(positions)
        self.judged.remove(positions)
        self.index = index
        self._learn_again()

    def prepare_to_learn(self) -> None:
        """Compute what the first change after loading would take longer for."""
        self.judged.find(self.judged.at(np.zeros(1, dtype=np.int64)))
        self.training_set.learn_all(lambda: self.judged.positions)

    def _growing_index(self) -> GrowingIndex:
        return copy(self.index) if isinstance(self.index, GrowingIndex) else GrowingIndex(self.index)

    def _learn_again(self) -> None:
        self.global_model = self.training_set.learn_all(lambda: self.judged.positions)

    def compacted(self, index: str | NeighborIndex) -> Self:
        """Return the model without the gaps that removed queries have left, with all points indexed anew."""
        if not isinstance(self.index, GrowingIndex):
            return self
        return replace(
            self,
            index=fit_index(index, self.index.kept_points()),
            training_set=self.training_set.take(self.judged.positions),
            judged=JudgedQueries(self.judged.qid),
        )

    def copy(self) -> Self:
        """Return a copy that shares the learned arrays and changes independently."""
        return replace(self, training_set=copy(self.training_set), judged=copy(self.judged))

    @classmethod
    def restore(cls, settings: LocalSettings, state: State, index: str | NeighborIndex) -> Self:
        """Restore from the arrays of `get_state`."""
        return cls(
            **vars(LocalModel.from_state(settings, state)),
            index=restore_index(index, unnest(state, "index")),
            judged=JudgedQueries(state["qid"]),
            usual_distances=state["usual_distances"],
        )
