"""What kinrank is compared with: the engine's order, and LightGBM, alone, in a bag and with memory."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float32, Float64
from kinrank.data.query_rows import shuffle_within_queries
from kinrank.data.queryset import QuerySet
from kinrank.data.split import split_queries
from kinrank.errors import DataError, ParameterError
from kinrank.learn.lambdamart import LambdaMART, shares_of_gain
from kinrank.memory.columns import PARTS, QueryMemory
from kinrank.rankers._local.choose import MEASURE
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.kin._parts import memory_folds
from kinrank.registry import Registry, import_extra

PEERS = Registry(
    "peer",
    {
        "lightgbm": "kinrank.study.peers:LightGBMPeer",
        "lightgbm-bag": "kinrank.study.peers:LightGBMBag",
        "lightgbm-memory": "kinrank.study.peers:LightGBMWithMemory",
        "feature": "kinrank.study.peers:FeaturePeer",
    },
)
"""What a team may run without kinrank, by name."""

Shape = tuple[int, int]
"""Leaves of a tree, and the fewest rows in a leaf."""
SHAPES: tuple[Shape, ...] = ((7, 50), (15, 50), (31, 20))


class LightGBMPeer(BaseEstimator):
    """LightGBM's ``lambdarank`` with early stopping on NDCG@10.

    Three shapes of trees are tried, with early stopping on a validation part of the training queries; the best one is
    refitted on all of them, with the number of trees found.

    Parameters
    ----------
    n_trees : int
        Maximum number of trees.
    learning_rate : float
        Shrinkage of each tree.
    shapes : sequence of (int, int), optional
        Leaves and fewest rows in a leaf to try; the best on the validation part is used. None uses LightGBM's defaults.
    params : dict, optional
        Parameters of LightGBM; they override all others.
    validation : float
        Share of the training queries used for early stopping; 0 grows all trees, with the first of `shapes`.
    group_column : str, optional
        Query column whose values are never split between the training and the validation part.
    patience : int
        Number of trees without a gain before training stops.
    n_threads : int
        Number of threads for training and prediction.
    seed : int
        Seed for the validation split and for LightGBM.

    Attributes
    ----------
    n_trees_ : int
        Number of trees.
    shape_ : (int, int) or None
        The best of `shapes`.

    Examples
    --------
    >>> from kinrank.datasets import make_intents
    >>> queries = make_intents(60, 0, n_docs=20, n_features=8)
    >>> peer = LightGBMPeer(20, validation=0.2).fit(queries)
    >>> 1 <= peer.n_trees_ <= 20, peer.predict(queries).shape
    (True, (1200,))
    >>> round(float(peer.feature_importances_.sum()), 6)
    1.0
    """

    def __init__(
        self,
        n_trees: int = 1000,
        *,
        learning_rate: float = 0.05,
        shapes: Sequence[Shape] | None = SHAPES,
        params: dict[str, Any] | None = None,
        validation: float = 0.15,
        group_column: str | None = None,
        patience: int = 50,
        n_threads: int = 1,
        seed: int = 0,
    ) -> None:
        self.n_trees = n_trees
        self.learning_rate = learning_rate
        self.shapes = shapes
        self.params = params
        self.validation = validation
        self.group_column = group_column
        self.patience = patience
        self.n_threads = n_threads
        self.seed = seed

    def fit(self, queries: QuerySet, *, validation: QuerySet | None = None) -> Self:
        """Fit on judged queries.

        Parameters
        ----------
        queries
            The training queries.
        validation
            Queries for early stopping, instead of a part of `queries`; never trained on.
        """
        queries = queries.only_weighted()
        part, held_out = self.parts(queries, None if validation is None else validation.only_weighted())
        self.shape_: Shape | None = self.shapes[0] if self.shapes else None
        if held_out is None:
            self.n_trees_ = self._grow(part, None, self.n_trees)
        else:
            self._choose(part, _shuffled(held_out))
            if validation is None:
                self.grow(queries)
        return self

    def parts(self, queries: QuerySet, validation: QuerySet | None = None) -> tuple[QuerySet, QuerySet | None]:
        """Check the queries, and return those to grow trees on and those to choose shape and number on, if any."""
        if not 0 <= self.validation < 1:
            raise ParameterError(f"validation must be a share from 0 to below 1, got {self.validation!r}")
        import_extra("lightgbm", "lightgbm")
        LambdaMART().check(queries)
        if validation is not None or self.validation == 0:
            return queries, validation
        shares = (1 - self.validation, self.validation)
        part, held_out = split_queries(queries, shares, group=self.group_column, seed=self.seed)
        return part, held_out

    def grow(self, queries: QuerySet) -> Self:
        """Fit again, on these queries, with the shape and the number of trees found before."""
        check_is_fitted(self)
        self._grow(queries, None, self.n_trees_)
        return self

    def _choose(self, queries: QuerySet, held_out: QuerySet) -> None:
        """Keep the shape, number of trees and model that are best on the held-out queries."""
        tried = []
        for shape in self.shapes or (None,):
            self.shape_ = shape
            n_trees = self._grow(queries, held_out, self.n_trees)
            judged = held_out.grades, held_out.offsets, None, held_out.sample_weight
            quality = MEASURE.mean(self.predict(held_out), *judged)
            tried.append((quality, shape, n_trees, self.model_))
        _, self.shape_, self.n_trees_, self.model_ = max(tried, key=lambda each: each[0])

    def predict(self, queries: QuerySet) -> Float64:
        """Return a score for every row."""
        check_is_fitted(self)
        return np.asarray(self._score(np.asarray(queries.X)), dtype=np.float64)

    def learned_from(self, queries: QuerySet) -> None:
        """Return None: the training queries are not recorded."""

    def learner(self) -> LambdaMART:
        """Return the unfitted learner with the shape and the number of trees found, for a model that can be saved."""
        check_is_fitted(self)
        return LambdaMART(self.n_trees_, learning_rate=self.learning_rate, params=self._own or None, seed=self.seed)

    @property
    def feature_importances_(self) -> Float64:
        """The share of each feature in the loss that the splits of all trees save."""
        check_is_fitted(self)
        return shares_of_gain(self.model_.feature_importance("gain", iteration=self.n_trees_))

    model_: Any

    def _grow(self, queries: QuerySet, validation: QuerySet | None, n_trees: int) -> int:
        """Train ``model_`` with ``shape_`` and return its number of trees."""
        lightgbm = import_extra("lightgbm", "lightgbm")
        settings = {
            "objective": "lambdarank",
            "metric": "ndcg",
            "eval_at": [10],
            "learning_rate": self.learning_rate,
            "num_threads": self.n_threads,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            **self._own,
        }
        rows = lightgbm.Dataset(
            np.asarray(queries.X), queries.grades, group=queries.sizes, weight=queries.sample_weight, params=settings
        )
        stopping: dict[str, Any] = {}
        if validation is not None:
            held_out = lightgbm.Dataset(
                np.asarray(validation.X),
                validation.grades,
                group=validation.sizes,
                weight=validation.sample_weight,
                reference=rows,
                params=settings,
            )
            stop = lightgbm.early_stopping(self.patience, verbose=False)
            stopping = {"valid_sets": [held_out], "callbacks": [stop]}
        self.model_ = lightgbm.train(settings, rows, num_boost_round=n_trees, **stopping)
        return int(self.model_.best_iteration) if validation is not None else n_trees

    def _shape_params(self, leaves: int, least: int) -> dict[str, Any]:
        """Return the parameters of a shape."""
        return {"num_leaves": leaves, "min_data_in_leaf": least}

    @property
    def _own(self) -> dict[str, Any]:
        """The parameters of the shape, and those that override all others."""
        return {**(self._shape_params(*self.shape_) if self.shape_ else {}), **(self.params or {})}

    def _score(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the sum of the trees."""
        scores: NDArray[Any] = self.model_.predict(X, num_threads=self.n_threads)
        return scores


def _shuffled(queries: QuerySet) -> QuerySet:
    """Shuffle the rows of each query, because the NDCG of LightGBM breaks ties by row order."""
    return queries.take_rows(shuffle_within_queries(queries.offsets))


# --- A bag of tuned LightGBM models: what averaging alone gains over one of them --------------------------------------


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


class LightGBMWithMemory(BaseEstimator):
    """A LightGBM model whose features are joined by columns of memory; see `kinrank.memory.columns`.

    It has the shape of the tuned model without them.

    Parameters
    ----------
    peer : LightGBMPeer, optional
        The model to tune; it is not tuned again if it is fitted.
    parts : sequence of {"everyone", "kin", "query", "chosen"}, optional
        Which columns of memory it has; by default all.
    keys : sequence of str, optional
        Columns of documents that memory keeps next to documents.
    group_column : str, optional
        Query column whose values are never split between training and validation part, nor between folds.

    Attributes
    ----------
    peer_ : LightGBMPeer
        The tuned model.
    memory_ : QueryMemory
        What is remembered.
    model_ : LightGBMPeer
        The model with memory.
    """

    def __init__(
        self,
        peer: LightGBMPeer | None = None,
        *,
        parts: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        group_column: str | None = None,
    ) -> None:
        self.peer = peer
        self.parts = parts
        self.keys = keys
        self.group_column = group_column

    @property
    def capabilities(self) -> Capabilities:
        """What it can do: remember."""
        return Capabilities(remembers=True)

    def fit(self, queries: QuerySet) -> Self:
        """Fit on judged queries with texts and document ids."""
        self.peer_ = self.peer or LightGBMPeer(group_column=self.group_column)
        if not hasattr(self.peer_, "model_"):
            self.peer_.fit(queries)
        self.memory_ = QueryMemory.of(queries, tuple(self.keys or ()))
        columns = self.memory_.cross_fitted(memory_folds(queries, self.group_column, None, 0), queries)
        self.model_ = copy(self.peer_).grow(self._joined(queries, columns))
        return self

    def predict(self, queries: QuerySet) -> Float64:
        """Return a score for every row."""
        check_is_fitted(self)
        return self.model_.predict(self._joined(queries, self.memory_.columns(queries)))

    def learned_from(self, queries: QuerySet) -> None:
        """Return None: the training queries are not recorded."""

    def _joined(self, queries: QuerySet, columns: Float32) -> QuerySet:
        """Return queries with the features and the wanted columns of memory."""
        wanted = tuple(name for part in self.parts or PARTS for name in PARTS[part])
        used = [name.endswith(wanted) for name in self.memory_.names]
        return queries.replace(X=np.hstack([queries.X, columns[:, used]]), feature_names=())


class FeaturePeer(BaseEstimator):
    """Documents in the order of one feature, such as the score of the engine; the highest value comes first.

    Parameters
    ----------
    name : str
        The feature. Documents without a value come last. Without a feature of that name, a number of each document
        such as ``engine_rank``, as ``kinrank log`` writes it: the smallest comes first.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [3.0], [np.nan]], group=[3], feature_names=["bm25"])
    >>> FeaturePeer("bm25").fit(queries).predict(queries).argsort()[::-1].tolist()
    [1, 0, 2]
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def fit(self, queries: QuerySet) -> Self:
        """Check that there is such a feature; nothing is learned."""
        self._column(queries)
        return self

    def predict(self, queries: QuerySet) -> Float64:
        """Return a score for every row."""
        values = self._column(queries).astype(np.float64)
        known = values[np.isfinite(values)]
        return np.where(np.isfinite(values), values, known.min(initial=0.0) - 1.0)

    def _column(self, queries: QuerySet) -> Float32:
        if self.name not in queries.feature_names:
            if self.name in queries.doc_columns:
                return -queries.doc_columns[self.name].astype(np.float32)
            names = ", ".join(queries.feature_names) or "none: features have no names"
            raise DataError(f"no feature is called {self.name!r}: choose one of these: {names}")
        column: Float32 = queries.X[:, queries.feature_names.index(self.name)]
        return column

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_]:
        """Return False for every query: nothing is learned."""
        return np.zeros(len(queries), dtype=np.bool_)
