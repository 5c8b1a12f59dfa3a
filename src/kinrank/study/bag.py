"""A bag of tuned LightGBM models: what averaging alone gains over one of them."""

from __future__ import annotations

from typing import Self

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.rankers.local.held_out import MEASURE
from kinrank.study.peers import LightGBMPeer

# Of whole queries: a sample of rows takes candidates out of lists, and such a bag was below one model of it on MSRD.
_SAMPLED = {"feature_fraction": 0.8, "bagging_fraction": 0.8, "bagging_freq": 1, "bagging_by_query": True}

_DECIDING = 2
"""Number of members that decide on the number of trees."""


class LightGBMBag(BaseEstimator):
    """Several LightGBM models, each on four fifths of the queries and features, and the mean of their scores.

    All have the shape of one tuned model. An average overfits less, so they have its number of trees or twice as many,
    whichever is better on the validation part.

    Parameters
    ----------
    n_members : int
        Number of models.
    peer : LightGBMPeer, optional
        The model to tune; it is not tuned again if it is fitted.
    group_column : str, optional
        Query column whose values are never split between the training and the validation part.

    Attributes
    ----------
    peer_ : LightGBMPeer
        The tuned model.
    members_ : list of LightGBMPeer
        The bag.

    Examples
    --------
    >>> from kinrank.datasets import make_intents
    >>> queries = make_intents(60, 0, n_docs=20, n_features=8)
    >>> bag = LightGBMBag(2, peer=LightGBMPeer(20)).fit(queries)
    >>> len(bag.members_), bag.predict(queries).shape
    (2, (1200,))
    """

    def __init__(
        self, n_members: int = 4, *, peer: LightGBMPeer | None = None, group_column: str | None = None
    ) -> None:
        self.n_members = n_members
        self.peer = peer
        self.group_column = group_column

    def fit(self, queries: QuerySet, *, validation: QuerySet | None = None) -> Self:
        """Tune one model, choose the number of trees, and grow the bag on `queries`.

        Parameters
        ----------
        queries
            The training queries.
        validation
            Queries to choose on, instead of a part of `queries`; never trained on.
        """
        part, held_out = self._unfitted().parts(queries, validation)
        return self.choose(part, held_out).grow(queries)

    def choose(self, queries: QuerySet, held_out: QuerySet | None) -> Self:
        """Tune one model on `queries`, and choose the number of trees of the bag, without growing it."""
        if self.peer is not None and hasattr(self.peer, "n_trees_"):
            self.peer_ = self.peer
        else:
            self.peer_ = self._unfitted().fit(queries, validation=held_out)
        self.n_trees_ = self.peer_.n_trees_
        if held_out is not None:
            self.n_trees_ = self._best_number(queries, held_out, self.n_trees_)
        return self

    def _unfitted(self) -> LightGBMPeer:
        peer: LightGBMPeer = clone(self.peer) if self.peer is not None else LightGBMPeer()
        if self.group_column is not None:
            peer.set_params(group_column=self.group_column)
        return peer

    def grow(self, queries: QuerySet) -> Self:
        """Grow the bag again, on these queries, with the shape and the number of trees found before."""
        check_is_fitted(self)
        self.members_ = self._grown(queries, self.n_trees_, self.n_members)
        return self

    def predict(self, queries: QuerySet) -> Float64:
        """Return a score for every row."""
        check_is_fitted(self, "members_")
        scores: Float64 = np.mean([member.predict(queries) for member in self.members_], axis=0)
        return scores

    def learned_from(self, queries: QuerySet) -> None:
        """Return None: the training queries are not recorded."""

    def _best_number(self, part: QuerySet, held_out: QuerySet, n_trees: int) -> int:
        models = [member.model_ for member in self._grown(part, 2 * n_trees, min(self.n_members, _DECIDING))]

        def quality(number: int) -> float:
            scores = np.sum([model.predict(np.asarray(held_out.X), num_iteration=number) for model in models], axis=0)
            return MEASURE.mean(scores, held_out.grades, held_out.offsets, sample_weight=held_out.sample_weight)

        return max((n_trees, 2 * n_trees), key=quality)

    def _grown(self, queries: QuerySet, n_trees: int, n_members: int) -> list[LightGBMPeer]:
        shape = self.peer_.shape_
        settings = {
            "n_trees": n_trees,
            "shapes": None if shape is None else (shape,),
            "params": {**_SAMPLED, **(self.peer_.params or {})},
            "validation": 0,
        }
        return [
            clone(self.peer_).set_params(**settings, seed=self.peer_.seed + member).fit(queries)
            for member in range(n_members)
        ]
