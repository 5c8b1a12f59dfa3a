"""Judgments that come and go after a fit: the local part learns at once, the trees with the next fit."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.data.queryset import QuerySet
from kinrank.describe.encoders import Encoder
from kinrank.errors import ParameterError
from kinrank.memory.columns import targets_of
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.intake import JudgedArrays, takes_arrays
from kinrank.rankers.kin._base import BasePart
from kinrank.rankers.kin.chosen import ChosenPart
from kinrank.rankers.kin.model import KinModel
from kinrank.rankers.kin.parts import MemoryPart
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.neighbor_model import JudgedQueries
from kinrank.rankers.local.texts import encode_texts
from kinrank.rankers.names import Names


class AdaptiveLocalPart:
    """Mixin of a ranker with a `KinModel`, whose local part learns without a new fit; stands before `Ranker`."""

    model_: KinModel
    unseen_: JudgedQueries
    encoder_: Encoder | None
    memory_: MemoryPart | None
    chosen_: ChosenPart | None
    base_: BasePart | None
    names_: Names

    if TYPE_CHECKING:  # of Ranker
        _queries: Callable[..., QuerySet]
        check_features: Callable[[tuple[str, ...]], None]

    @property
    def local_(self) -> KnnRanker | CellRanker:
        """The local part, with its own `explain` and `weights`."""
        return self.model_.local

    @property
    def unseen_qid_(self) -> NDArray[Any]:
        """The judged queries that the other parts have not been fitted on."""
        return self.unseen_.qid

    @property
    def qid_(self) -> NDArray[Any]:
        """The judged queries that the local part learns from; with cells, the one nearest to each center."""
        return self.local_.qid_

    @property
    def n_judged_(self) -> int:
        """The number of judged queries that the local part learns from; with cells, the number of cells."""
        return self.local_.n_judged_

    @property
    def n_unseen_(self) -> int:
        """The number of judged queries that await a new fit."""
        return len(self.unseen_)

    def has_judged(self, qid: ArrayLike) -> NDArray[np.bool_]:
        """Return which of these ids are those of judged queries that the local part keeps."""
        return self.local_.has_judged(qid)

    def encoded(self, queries: QuerySet) -> QuerySet:
        """Return the queries with a vector each, encoded unless they have vectors, and with the score of the base."""
        encoded = encode_texts(self.encoder_, queries)
        return encoded if self.base_ is None else self.base_.with_score(encoded)

    @property
    def _knn(self) -> KnnRanker:
        if not isinstance(self.local_, KnnRanker):
            raise ParameterError("cells do not keep the ids of their queries: pass the queries themselves to forget")
        return self.local_

    @property
    def _cells(self) -> CellRanker:
        if not isinstance(self.local_, CellRanker):
            raise ParameterError("this needs sums over cells: fit with n_cells=, or use add and remove")
        return self.local_

    def prepare_to_learn(self) -> Self:
        """Compute what the first `add` or `remove` after loading would take longer for."""
        if isinstance(self.local_, KnnRanker):
            self.local_.prepare_to_learn()
        return self

    @takes_arrays
    def add(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Learn from further judged queries without fitting again.

        Memory, the local model of every query and the global model use them at once. The trees and the shares stay as
        they are until the next fit; `n_unseen_` counts what they have not seen. Do not call this while another thread
        predicts.
        """
        queries = self.encoded(self._queries(X, y, **arrays))
        self.local_.add(queries)
        if self.memory_ is not None:
            self.memory_ = self.memory_.added(queries)
        if self.chosen_ is not None:
            self.chosen_ = self.chosen_.added(queries)
        self.names_ = self.names_.added(queries)
        self._set_unseen(queries.qid)
        return self

    def check_learnable(self, queries: QuerySet) -> None:
        """Raise `DataError` if `add` could not learn these queries."""
        self.check_features(queries.feature_names)
        self._knn.check_learnable(self.encoded(queries))
        if self.memory_ is not None:
            targets_of(queries, self.memory_.memory.keys)  # raises if memory could not find its documents

    def remove(self, qid: ArrayLike) -> Self:
        """Forget judged queries by id, in memory and in linear models. The trees forget them with the next fit."""
        self._knn.remove(qid)
        self._forget(qid)
        self._drop_unseen(np.atleast_1d(np.asarray(qid)))
        return self

    @takes_arrays
    def forget(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Subtract judged queries from the cells, given with the same candidates and grades as they were learned.

        The trees forget them with the next fit. Needs `n_cells`; see `CellRanker.forget`.
        """
        queries = self.encoded(self._queries(X, y, **arrays))
        self._cells.forget(queries)
        self._forget(queries.qid)
        self._drop_unseen(queries.qid)
        return self

    def _forget(self, qid: ArrayLike) -> None:
        if self.memory_ is not None:
            self.memory_ = self.memory_.without(qid)
        if self.chosen_ is not None:
            self.chosen_ = self.chosen_.without(qid)

    @takes_arrays
    def fit_alike(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Return a new ranker with the trees and cells of this one, whose local part learns from other judged queries.

        Such rankers can be merged, on whatever machine they were fitted. Needs `n_cells`.
        """
        queries = self.encoded(self._queries(X, y, **arrays))
        return self.with_cells(self._cells.fit_alike(queries), queries.qid)

    def with_cells(self, cells: CellRanker, unseen: NDArray[Any]) -> Self:
        """Return a copy with another local part; the trees stay. `unseen` are its queries, as far as known."""
        other = self.copy()
        other.model_, other.unseen_ = replace(other.model_, local=cells), JudgedQueries(unseen)
        return other

    def merge(self, other: Self) -> Self:
        """Add the judged queries of another ranker to the local part of this one; the trees stay until the next fit.

        Both must have the same scaling, description and cells; see `fit_alike`. Needs `n_cells`.
        """
        self._cells.merge(other._cells)
        self._set_unseen(other.unseen_qid_)
        return self

    def copy(self) -> Self:
        """Return a fitted copy that shares the learned arrays and the trees; what it learns later, it learns alone."""
        other: Self = super().copy()  # type: ignore[misc]
        other.model_ = replace(self.model_, local=self.local_.copy())
        other.unseen_ = copy(self.unseen_)
        return other

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries, by id, were training queries or were added later; None if that is unknown."""
        by_fit: NDArray[np.bool_] | None = super().learned_from(queries)  # type: ignore[misc]
        masks = [mask for mask in (by_fit, self.local_.learned_from(queries)) if mask is not None]
        return np.any([*masks, self.unseen_.find(queries.qid) >= 0], axis=0) if masks else None

    def _set_unseen(self, qid: NDArray[Any]) -> None:
        if not len(self.unseen_):
            self.unseen_ = JudgedQueries(qid[:0])  # of the type of the ids
        self.unseen_.add(qid[self.unseen_.find(qid) < 0])

    def _drop_unseen(self, qid: NDArray[Any]) -> None:
        positions = self.unseen_.find(qid)
        self.unseen_.remove(np.unique(positions[positions >= 0]))
