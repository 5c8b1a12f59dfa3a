"""Judged queries that come and go: ids, index and statistics change together, without a new fit."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import State
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.neighbors import NeighborIndex, restore_index
from kinrank.neighbors.growing import GrowingIndex
from kinrank.rankers.local.judged_queries import JudgedQueries
from kinrank.rankers.local.model import LocalModel, LocalSettings
from kinrank.rankers.local.neighbor_model import NeighborModel, fit_index, measure_distances
from kinrank.rankers.local.training_base import EditableTrainingSet
from kinrank.store import unnest


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
