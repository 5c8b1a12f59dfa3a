"""The contract of a ranker: judged queries in, scores in the caller's row order out."""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

import kinrank
from kinrank.arrays import Float64, State
from kinrank.data.id_hashes import IdHashes, hash_ids
from kinrank.data.queryset import QuerySet, default_names
from kinrank.data.vectors import VECTORS, QueryVectors, align_vectors
from kinrank.describe import DESCRIBERS, METRICS
from kinrank.errors import DataError, ParameterError
from kinrank.learn import LEARNERS
from kinrank.learn.regressors import REGRESSORS
from kinrank.measure import NDCG
from kinrank.neighbors import INDEXES
from kinrank.rankers import RANKERS
from kinrank.store import ModelRecord, decode, encode, read_model, write_model

PARTS = (RANKERS, LEARNERS, REGRESSORS, DESCRIBERS, METRICS, INDEXES)


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of candidates, and how far their queries lie from what was judged.

    Attributes
    ----------
    scores : float64 array of shape (rows,)
        As `Ranker.predict` gives them.
    novelty : float64 array of shape (queries,), or None
        The distance to the nearest judged query, 1.0 being that which 99% of the judged queries have to their nearest
        other at most. None where a ranker knows no distance between queries.
    """

    scores: Float64
    novelty: Float64 | None = None


_QUERIES_AT_ONCE = 4096


class Ranker(BaseEstimator, ABC):
    """Base of all rankers.

    A ranker implements `_fit`, `_predict`, `get_state` and `set_state` (and `_weights` where it has weights) over
    grouped, checked `QuerySet`s. Everything around them is here: arrays in any row order, ``qid`` or ``group``,
    scikit-learn's conventions, saving.

    Everywhere, X may be a `QuerySet`; y, qid, group and query_vectors are then read from it, and scores come back
    in its row order.
    """

    learned_from_: IdHashes | None = None  # of the queries it learned from

    # --- what a ranker implements -------------------------------------------------------------------------------

    @abstractmethod
    def _fit(self, queries: QuerySet) -> None:
        """Learn from judged queries."""

    @abstractmethod
    def _predict(self, queries: QuerySet) -> Float64:
        """Score the candidates of each query."""

    def _weights(self, queries: QuerySet) -> Float64:  # noqa: ARG002 - the contract of those that have weights
        raise ParameterError(
            f"{type(self).__name__} has no weights: its model is not linear; KnnRanker with a linear learner has them"
        )

    @abstractmethod
    def get_state(self) -> State:
        """The fitted ranker as plain arrays."""

    @abstractmethod
    def set_state(self, state: State) -> Self:
        """Take over a fitted ranker from `get_state`."""

    def remarks(self) -> list[str]:
        """What fitting found out that whoever trains should read; nothing, for most."""
        return []

    # --- what everyone calls ------------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
    ) -> Self:
        """Learn from judged queries.

        Parameters
        ----------
        X
            Features, one row per candidate, or a `QuerySet`.
        y
            Grades, one per row; higher is better.
        qid
            The query of each row, in any order.
        group
            Instead of qid: rows per query, in order.
        query_vectors
            What is known of each query beside its candidates: a mapping from query id to vector, or an array with
            one row per query in order of first appearance. Rankers that do not describe queries ignore them.
        """
        queries = self._take(X, y, qid, group, query_vectors, fitting=True)
        self._fit(queries)
        self._remember(queries)
        return self

    def predict(
        self,
        X: ArrayLike | QuerySet,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
    ) -> Float64:
        """Score candidates; without qid and group all rows are candidates of one query.

        Returns
        -------
        float64 array of shape (rows,)
            In the caller's row order. Only differences within one query mean anything.
        """
        queries = self._take(X, None, qid, group, query_vectors)
        scores = self._predict(queries)
        return scores if isinstance(X, QuerySet) else queries.in_caller_order(scores)

    def scored(self, queries: QuerySet) -> Scored:
        """The scores of grouped queries and, from the same pass, how far each is from what was judged: for a service.

        Beyond the names of the features nothing is checked, which is most of what `predict` costs on a single query.
        """
        self.check_features(queries.feature_names)
        return self._score_and_place(queries)

    def check_features(self, names: tuple[str, ...]) -> None:
        """Raise where these are not the features of fit, in its order."""
        if names != self.feature_names_:
            raise DataError(_difference(self.feature_names_, names))

    def _score_and_place(self, queries: QuerySet) -> Scored:
        return Scored(self._predict(queries))

    def weights(
        self,
        X: ArrayLike | QuerySet,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
    ) -> Float64:
        """One weight vector per query, for features as they were given (not as scaled).

        Returns
        -------
        float64 array of shape (queries, features)
            Queries in order of first appearance. Ranking by ``X @ weights``, a missing feature counting 0, is ranking
            by `predict`; candidates of which that is not true, since ``missing="mean"`` fills them, are refused.
        """
        queries = self._take(X, None, qid, group, query_vectors)
        weights = self._weights(queries)
        if getattr(self, "missing", None) == "mean":
            _refuse_filled(queries, weights)
        return weights

    def score(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
    ) -> float:
        """Mean NDCG@10, `kinrank.measure.NDCG` with its standard conventions.

        Without qid and group all rows are one query, which is seldom meant: a warning says so. In scikit-learn's
        searches ask for it with ``set_fit_request(qid=True).set_score_request(qid=True)``.
        """
        queries = self._take(X, y, qid, group, query_vectors)
        return (NDCG @ 10).mean(self._predict(queries), queries.grades, queries.offsets)

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Which of these queries, by id, it has learned from; None where it does not know."""
        check_is_fitted(self)
        return None if self.learned_from_ is None else np.isin(hash_ids(queries.qid), self.learned_from_)

    def copy(self) -> Self:
        """A fitted ranker that shares what this one has learned, and learns further by itself."""
        check_is_fitted(self)
        other: Self = clone(self)
        other.feature_names_, other.n_features_in_ = self.feature_names_, self.n_features_in_
        other.learned_from_ = self.learned_from_
        return other.set_state(self.get_state())

    def save(self, path: str | os.PathLike[str], *, examples: QuerySet | None = None) -> None:
        """Write the fitted ranker as a folder that `kinrank.load` reads.

        Parameters
        ----------
        path
            The folder; a model already there is replaced.
        examples
            A few queries, kept in the folder with their scores. A service ranks them before it takes the model into
            use, and refuses it where they score otherwise than here.
        """
        check_is_fitted(self)
        params = encode(self.get_params(deep=False), PARTS)
        name = RANKERS.name_of(type(self))
        record = ModelRecord(
            name, params, self.feature_names_, kinrank.__version__, self.get_state(), self.learned_from_
        )
        write_model(path, record, None if examples is None else (examples, self.predict(examples)))

    @classmethod
    def from_record(cls, record: ModelRecord) -> Self:
        """A fitted ranker from what `save` wrote."""
        ranker = cls(**decode(record.params, PARTS))
        ranker.feature_names_ = record.feature_names
        ranker.n_features_in_ = len(record.feature_names)
        ranker.learned_from_ = record.learned_from
        return ranker.set_state(record.arrays)

    # --- how ------------------------------------------------------------------------------------------------------

    def _remember(self, queries: QuerySet) -> None:
        """Keep what `learned_from` needs, after fitting."""
        self.learned_from_ = hash_ids(queries.qid)

    def _take(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        *,
        fitting: bool = False,
    ) -> QuerySet:
        """Whatever the caller gave, as a checked QuerySet."""
        if not fitting:
            check_is_fitted(self)
        if isinstance(X, QuerySet):
            if y is not None or qid is not None or group is not None:
                raise DataError("X is a QuerySet, which has its own y and qid: pass it alone")
            queries = X
            self._check_features(queries, fitting)
        else:
            queries = self._from_arrays(X, y, qid, group, fitting)
        if fitting:
            _check_judged(queries)
            self.feature_names_ = queries.feature_names
        if query_vectors is not None:
            vectors = align_vectors(queries, query_vectors)
            queries = queries.replace(query_columns={**queries.query_columns, VECTORS: vectors})
        return queries

    def _from_arrays(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        qid: ArrayLike | None,
        group: ArrayLike | None,
        fitting: bool,
    ) -> QuerySet:
        if not fitting and hasattr(X, "columns") and not hasattr(self, "feature_names_in_"):
            # Fitted on a QuerySet, or loaded: scikit-learn has seen no names, but we know them.
            self._check_names(tuple(map(str, X.columns)))
            X = np.asarray(X)
        # Finiteness is checked later, where the message can name the query and the feature.
        settings: dict[str, Any] = {"reset": fitting, "dtype": np.float32, "ensure_all_finite": False}
        if y is None and not fitting:
            rows, grades = validate_data(self, X, **settings), None
        else:
            # One row alone has no order to learn.
            least = 2 if fitting else 1
            rows, grades = validate_data(self, X, y, y_numeric=True, ensure_min_samples=least, **settings)
        if qid is None and group is None:
            if fitting or y is not None:
                warnings.warn(
                    f"no qid= and no group=: all {len(rows)} rows are taken as candidates of one query",
                    UserWarning,
                    stacklevel=4,
                )
            group = [len(rows)]
        names = getattr(self, "feature_names_in_", None)
        return QuerySet.from_arrays(rows, grades, qid=qid, group=group, feature_names=names)

    def _check_features(self, queries: QuerySet, fitting: bool) -> None:
        if fitting:
            self.n_features_in_ = queries.n_features
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
            return
        self.check_features(queries.feature_names)

    def _check_names(self, names: tuple[str, ...]) -> None:
        nameless = self.feature_names_ == default_names(len(self.feature_names_))
        if not nameless:
            self.check_features(names)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _refuse_filled(queries: QuerySet, weights: Float64) -> None:
    """Raise where a feature that has a weight is there in some candidates of a query and missing in others."""
    if not len(queries) or not np.isnan(queries.X).any():
        return
    share = np.add.reduceat(np.isnan(queries.X), queries.offsets[:-1], axis=0, dtype=np.int64) / queries.sizes[:, None]
    filled = (share > 0) & (share < 1) & (weights != 0)
    if filled.any():
        query, feature = np.argwhere(filled)[0]
        raise DataError(
            f"feature {queries.feature_names[feature]!r} is missing (NaN) in some candidates of query "
            f"{queries.qid[query].item()!r}, where this ranker takes its mean, which weights cannot say: in a sum "
            "it counts 0. Fit with missing='zero', or give all candidates the feature"
        )


def load(path: str | os.PathLike[str]) -> Ranker:
    """Read a ranker that `Ranker.save` wrote; its arrays are memory-mapped.

    Raises
    ------
    kinrank.errors.StoreError
        Where the folder is not a model, is from a newer kinrank, or has changed since it was written.
    """
    return from_record(read_model(path))


def from_record(record: ModelRecord) -> Ranker:
    """The fitted ranker that a model folder holds."""
    ranker: Ranker = RANKERS[record.ranker].from_record(record)
    return ranker


def _check_judged(queries: QuerySet) -> None:
    if not len(queries.grades):
        raise DataError("there is no query to learn from")
    # Some at a time, and no further than needed: the set may be larger than memory.
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        some = queries[start : start + _QUERIES_AT_ONCE]
        if not np.array_equal(some.grades, np.repeat(some.grades[some.offsets[:-1]], some.sizes)):
            return
    raise DataError(
        f"in each of the {len(queries)} queries all grades are equal, so there is nothing to learn an order from: "
        "check y and qid"
    )


def _difference(expected: tuple[str, ...], got: tuple[str, ...]) -> str:
    missing = [name for name in expected if name not in got]
    extra = [name for name in got if name not in expected]
    if missing or extra:
        return (
            f"the ranker was fitted on {len(expected)} features, got {len(got)}: "
            f"missing {_some(missing)}, unknown {_some(extra)}; give the features of fit, by the same names"
        )
    return (
        f"the features are in another order than in fit: expected {_some(expected)}, got {_some(got)}; "
        "bring the columns into that order"
    )


def _some(names: Sequence[str]) -> str:
    """A few names, and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{list(names[:5])}{more}"
