"""Judgments that come and go after fitting: learned by addition, forgotten by subtraction, never by fitting again."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from kinrank.data.queryset import QuerySet
from kinrank.data.vectors import QueryVectors
from kinrank.errors import DataError, ParameterError
from kinrank.neighbors import NeighborIndex
from kinrank.rankers.cells.memory import CellMemory
from kinrank.rankers.cells.ranker import CellRanker
from kinrank.rankers.local.memory import QueryMemory


class ChangingRanker(CellRanker):
    """Base of local rankers whose judged queries may change.

    A subclass keeps ``index_`` and ``qid_`` beside the memory.
    """

    index_: NeighborIndex
    qid_: NDArray[Any]

    def add(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
    ) -> Self:
        """Learn from further judged queries without fitting again.

        Scaling, description and cells stay as they were fitted; the model of every neighborhood, and the global one,
        are what fitting with them on all queries would give. Not while another thread predicts. With cells nobody
        remembers which queries are known: one that is added twice counts twice.
        """
        queries = self._take(X, y, qid, group, query_vectors)
        if isinstance(self.memory_, CellMemory):
            more = self.plan_.sums([queries])
            return self._with_cells(more)
        known = np.isin(queries.qid, self.qid_)
        if known.any():
            raise DataError(f"query {queries.qid[known][0].item()!r} is known already: remove it first, then add it")
        if queries.qid.dtype.kind != self.qid_.dtype.kind:
            raise DataError(f"the judged queries have ids like {self.qid_[0].item()!r}, got {queries.qid[0].item()!r}")
        # Whatever may be refused comes before the first change.
        points, prepared = self._points(queries), queries.replace(y=queries.grades, X=self._prepared(queries))
        self._each_query.add(prepared)
        self.index_.add(points)
        self.qid_ = np.concatenate([self.qid_, queries.qid])
        return self._learn_again()

    def remove(self, qid: ArrayLike) -> Self:
        """Forget judged queries by id, as if they had never been seen (but for scaling and description)."""
        check_is_fitted(self)
        memory = self._each_query
        wanted = np.atleast_1d(np.asarray(qid))
        index = np.flatnonzero(np.isin(self.qid_, wanted))
        unknown = wanted[~np.isin(wanted, self.qid_)]
        if len(unknown):
            raise DataError(f"query {unknown[0].item()!r} is not among the {len(self.qid_)} judged queries")
        if len(index) == len(self.qid_):
            raise DataError("cannot remove every judged query: nothing would be left to learn from")
        self.index_.remove(index)
        memory.remove(index)
        self.qid_ = np.delete(self.qid_, index)
        return self._learn_again()

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Which of these queries, by id, it has learned from; with cells None, unless one of them names its cell."""
        check_is_fitted(self)
        known = np.isin(queries.qid.astype(np.str_), self.qid_.astype(np.str_))
        return known if self.cells is None or known.any() else None

    def _remember(self, queries: QuerySet) -> None:
        """Nothing: `qid_` changes with the judged queries, and cells do not know theirs."""

    def forget(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
    ) -> Self:
        """Withdraw judged queries from cells, given as they were learned: the same candidates and grades.

        What is left is what the other queries alone would have given, up to rounding in float64. Cells do not know
        their queries, so it is the caller who must know that these were learned.
        """
        queries = self._take(X, y, qid, group, query_vectors)
        cells, _, each = self.plan_.located(queries.replace(y=queries.grades))
        memory = self._cells.copy()
        memory.forget(cells, queries.qid, each)
        if not memory.counts.any():
            raise DataError("cannot forget every judged query: nothing would be left to learn from")
        self.memory_ = memory
        return self._learn_again()

    def fit_alike(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
    ) -> Self:
        """A new ranker of other judged queries, with the scaling, description and cells of this one.

        Such rankers can be put together by `merge`, wherever and whenever they were fitted.
        """
        queries = self._take(X, y, qid, group, query_vectors)
        twin = copy(self)
        twin.memory_ = CellMemory.empty(self._cells.learner, len(self.qid_), self.n_features_in_)
        return twin._with_cells(self.plan_.sums([queries]))

    def merge(self, other: Self) -> Self:
        """Learn what another ranker has learned, by adding its cells to these.

        Both must have the same scaling, description and cells: one comes from the other by `fit_alike`, or both
        from a third. The queries of the two must be different ones; one that is in both counts twice.
        """
        check_is_fitted(self)
        check_is_fitted(other)
        if self.feature_names_ != other.feature_names_ or self.plan_.digest() != other.plan_.digest():
            raise ParameterError(
                "only rankers with the same scaling, description and cells can be merged: make the second by "
                "first.fit_alike(queries)"
            )
        return self._with_cells(other._cells)

    def _with_cells(self, more: CellMemory) -> Self:
        memory = self._cells.copy()
        memory.merge(more)
        self.memory_ = memory
        return self._learn_again()

    @property
    def _each_query(self) -> QueryMemory:
        if not isinstance(self.memory_, QueryMemory):
            raise ParameterError(
                "with cells= there are sums and no single queries: withdraw judgments by forget(X, y, qid=qid)"
            )
        return self.memory_

    @property
    def _cells(self) -> CellMemory:
        if not isinstance(self.memory_, CellMemory):
            raise ParameterError("this needs cells: fit with cells=, or use add(X, y, qid=qid) and remove(qid)")
        return self.memory_
