"""Judgments that come and go after a fit: the local part learns at once, the trees with the next fit."""

from __future__ import annotations

from copy import copy
from typing import Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from kinrank.data.queryset import QuerySet
from kinrank.data.texts import QueryTexts
from kinrank.data.vectors import QueryVectors
from kinrank.errors import ParameterError
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.judged_queries import JudgedQueries
from kinrank.rankers.local.texts import TextRanker


class AdaptiveLocalPart(TextRanker):
    """Mixin of a ranker with a local part, ``local_``, that learns without a new fit.

    Attributes
    ----------
    unseen_qid_ : array
        The judged queries that the other parts have not been fitted on.
    """

    local_: KnnRanker | CellRanker
    unseen_: JudgedQueries

    @property
    def unseen_qid_(self) -> NDArray[Any]:
        """The judged queries that the other parts have not been fitted on."""
        return self.unseen_.qid

    @unseen_qid_.setter
    def unseen_qid_(self, qid: NDArray[Any]) -> None:
        self.unseen_ = JudgedQueries(qid)

    @property
    def qid_(self) -> NDArray[Any]:
        """The judged queries that the local part learns from; with cells, the one nearest to each center."""
        return self.local_.qid_

    @property
    def n_judged_(self) -> int:
        """The number of judged queries that the local part learns from; with cells, the number of cells."""
        return self.local_.n_judged_

    def prepare_to_learn(self) -> Self:
        """Compute what the first `add` or `remove` after loading would take longer for."""
        if self.capabilities.replaces:
            cast(KnnRanker, self.local_).prepare_to_learn()
        return self

    def has_judged(self, qid: ArrayLike) -> NDArray[np.bool_]:
        """Return which of these ids are those of judged queries that the local part keeps."""
        return self.local_.has_judged(qid)

    @property
    def n_unseen_(self) -> int:
        """The number of judged queries that await a new fit."""
        return len(self.unseen_)

    @property
    def _cells(self) -> CellRanker:
        if not self.capabilities.merges:
            raise ParameterError("this needs sums over cells: fit with n_cells=, or use add and remove")
        return cast(CellRanker, self.local_)

    def add(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
    ) -> Self:
        """Learn from further judged queries without fitting again.

        The local model of every query, and the global model, use them at once. The trees and the shares stay as they
        are until the next fit; `n_unseen_` counts what they have not seen. Do not call this while another thread
        predicts.
        """
        queries = self.encoded(self._queries(X, y, qid, group, query_vectors, query_text))
        self.local_.add(queries)
        self._set_unseen(queries.qid)
        return self

    def check_learnable(self, queries: QuerySet) -> None:
        """Raise `DataError` if `add` could not learn these queries."""
        self.check_features(queries.feature_names)
        cast(KnnRanker, self.local_).check_learnable(self.encoded(queries))

    def remove(self, qid: ArrayLike) -> Self:
        """Forget judged queries by id in the local and the global model. The trees forget them with the next fit."""
        if not self.capabilities.replaces:
            raise ParameterError("cells do not keep the ids of their queries: pass the queries themselves to forget")
        cast(KnnRanker, self.local_).remove(qid)
        self._drop_unseen(np.atleast_1d(np.asarray(qid)))
        return self

    def forget(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
    ) -> Self:
        """Subtract judged queries from the cells, given with the same candidates and grades as they were learned.

        The trees forget them with the next fit. Needs `n_cells`; see `CellRanker.forget`.
        """
        queries = self.encoded(self._queries(X, y, qid, group, query_vectors, query_text))
        self._cells.forget(queries)
        self._drop_unseen(queries.qid)
        return self

    def fit_alike(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
    ) -> Self:
        """Return a new ranker with the trees and cells of this one, whose local part learns from other judged queries.

        Such rankers can be merged, on whatever machine they were fitted. Needs `n_cells`.
        """
        queries = self.encoded(self._queries(X, y, qid, group, query_vectors, query_text))
        return self.with_cells(self._cells.fit_alike(queries), queries.qid)

    def with_cells(self, cells: CellRanker, unseen: NDArray[Any]) -> Self:
        """Return a copy with another local part; the trees stay. `unseen` are its queries, as far as known."""
        other = self.copy()
        other.local_, other.unseen_qid_ = cells, unseen
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
        other: Self = clone(self)
        settings = self.get_params(deep=False)
        other.__dict__.update({name: value for name, value in self.__dict__.items() if name not in settings})
        other.local_, other.unseen_ = self.local_.copy(), copy(self.unseen_)
        return other

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries, by id, were training queries or were added later; None if that is unknown."""
        known = [
            each for each in (super().learned_from(queries), self.local_.learned_from(queries)) if each is not None
        ]
        if not known:
            return None
        added: NDArray[np.bool_] = self.unseen_.find(queries.qid) >= 0
        for each in known:
            added |= each
        return added

    def _set_unseen(self, qid: NDArray[Any]) -> None:
        if not len(self.unseen_):
            self.unseen_qid_ = qid[:0]  # of the type of the ids
        self.unseen_.add(qid[self.unseen_.find(qid) < 0])

    def _drop_unseen(self, qid: NDArray[Any]) -> None:
        positions = self.unseen_.find(qid)
        self.unseen_.remove(np.unique(positions[positions >= 0]))
