"""Judgments that come and go after a fit: the local part learns at once, the trees with the next fit."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from kinrank.data.queryset import QuerySet
from kinrank.data.texts import QueryTexts
from kinrank.data.vectors import QueryVectors
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.texts import TextRanker


class AdaptiveLocalPart(TextRanker):
    """Mixin of a ranker with a local part, ``local_``, that learns without a new fit.

    Attributes
    ----------
    unseen_qid_ : array
        The judged queries that the other parts have not been fitted on.
    """

    local_: KnnRanker
    unseen_qid_: NDArray[Any]

    @property
    def qid_(self) -> NDArray[Any]:
        """The judged queries that the local part learns from."""
        return self.local_.qid_

    @property
    def n_unseen_(self) -> int:
        """The number of judged queries that await a new fit."""
        return len(self.unseen_qid_)

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
        self.unseen_qid_ = np.concatenate([self.unseen_qid_.astype(queries.qid.dtype), queries.qid])
        return self

    def remove(self, qid: ArrayLike) -> Self:
        """Forget judged queries by id in the local and the global model. The trees forget them with the next fit."""
        self.local_.remove(qid)
        self.unseen_qid_ = self.unseen_qid_[~np.isin(self.unseen_qid_, np.atleast_1d(np.asarray(qid)))]
        return self

    def copy(self) -> Self:
        """Return a fitted copy that shares the learned arrays and the trees; what it learns later, it learns alone."""
        other: Self = clone(self)
        settings = self.get_params(deep=False)
        other.__dict__.update({name: value for name, value in self.__dict__.items() if name not in settings})
        other.local_ = self.local_.copy()
        return other

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries, by id, were training queries or were added later; None if that is unknown."""
        fitted = super().learned_from(queries)
        return None if fitted is None else fitted | self.local_.learned_from(queries)
