"""Input of any form becomes a checked `QuerySet`: arrays in any row order, data frames, query sets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from kinrank.data.columns import check_grades_are_numbers
from kinrank.data.features import default_names
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, QueryTexts, align_texts
from kinrank.data.vectors import VECTORS, QueryVectors, align_vectors
from kinrank.errors import DataError

_QUERIES_AT_ONCE = 4096


class QueryInput(BaseEstimator):
    """Base of estimators that take queries with candidates.

    Attributes
    ----------
    feature_names_ : tuple of str
        The features of `fit`, in order.
    n_features_in_ : int
        How many there are.
    """

    feature_names_: tuple[str, ...]
    n_features_in_: int

    def check_features(self, names: tuple[str, ...]) -> None:
        """Raise `DataError` unless these are the features of `fit`, in the same order."""
        if names != self.feature_names_:
            raise DataError(_difference(self.feature_names_, names))

    def _queries(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        query_vectors: QueryVectors | None = None,
        query_text: QueryTexts | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        fitting: bool = False,
    ) -> QuerySet:
        """Return the input of a public method as a checked query set."""
        if not fitting and "feature_names_" not in vars(self):  # looks first: scikit-learn's check takes its time
            check_is_fitted(self)
        if isinstance(X, QuerySet):
            if y is not None or qid is not None or group is not None or sample_weight is not None:
                raise DataError("X is a QuerySet, which has its own y, qid and sample_weight: pass it alone")
            queries = X
            self._check_query_set(queries, fitting)
        else:
            queries = self._from_arrays(X, y, qid, group, sample_weight, fitting)
        if fitting:
            _check_judged(queries)
            self.feature_names_ = queries.feature_names
        if query_vectors is not None:
            vectors = align_vectors(queries, query_vectors)
            queries = queries.replace(query_columns={**queries.query_columns, VECTORS: vectors})
        if query_text is not None:
            texts = align_texts(queries, query_text)
            queries = queries.replace(query_columns={**queries.query_columns, TEXT: texts})
        return queries

    def _from_arrays(
        self,
        X: ArrayLike,
        y: ArrayLike | None,
        qid: ArrayLike | None,
        group: ArrayLike | None,
        sample_weight: ArrayLike | None,
        fitting: bool,
    ) -> QuerySet:
        if not fitting and hasattr(X, "columns") and not hasattr(self, "feature_names_in_"):
            # Fitted on a QuerySet, or loaded: scikit-learn has seen no names, but we have.
            self._check_columns(tuple(map(str, X.columns)))
            X = np.asarray(X)
        # Finiteness is checked later, where the message can name the query and the feature.
        settings: dict[str, Any] = {"reset": fitting, "dtype": np.float32, "ensure_all_finite": False}
        if y is None and not fitting:
            rows, grades = validate_data(self, X, **settings), None
        else:
            check_grades_are_numbers([] if y is None else y)
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
        names = getattr(self, "feature_names_in_", None) if fitting else self.feature_names_
        return QuerySet.from_arrays(
            rows, grades, qid=qid, group=group, feature_names=names, sample_weight=sample_weight
        )

    def _check_query_set(self, queries: QuerySet, fitting: bool) -> None:
        if fitting:
            self.n_features_in_ = queries.n_features
            self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
            return
        self.check_features(queries.feature_names)

    def _check_columns(self, names: tuple[str, ...]) -> None:
        fitted_with_names = self.feature_names_ != default_names(len(self.feature_names_))
        if fitted_with_names:
            self.check_features(names)


def _check_judged(queries: QuerySet) -> None:
    if not queries.n_rows:
        raise DataError("there is no query to learn from")
    if queries.sample_weight is not None and not np.any(queries.sample_weight):
        raise DataError("Sample weights must contain at least one non-zero number: check sample_weight")
    # In blocks, and no further than needed: the set may be larger than memory.
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
            f"missing {_some(missing)}, unknown {_some(extra)}; pass the features of fit, by the same names"
        )
    return (
        f"the features are in another order than in fit: expected {_some(expected)}, got {_some(got)}; "
        "reorder the columns"
    )


def _some(names: Sequence[str]) -> str:
    """Return the first few names and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{list(names[:5])}{more}"
