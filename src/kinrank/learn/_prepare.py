"""Feature preparation for linear learners: fill missing values and standardize."""

from __future__ import annotations

from typing import Any, Literal, Self, get_args

import numba
import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from kinrank.arrays import Float32, Float64, State
from kinrank.data.normalization import Normalization, normalization_of, normalize
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.registry import check_choice

Scale = Literal["standard", "none", "min_max", "l2", "z_score"]
Missing = Literal["error", "zero", "mean"]

_ROWS_AT_ONCE = 1 << 18


class Preparer(BaseEstimator):
    """Fill missing values and scale features.

    A linear model on prepared features is also linear in raw features: `raw_weights` converts its weights, up to a
    constant per query that does not affect the ranking.

    Parameters
    ----------
    scale : {"standard", "none", "min_max", "l2", "z_score"}
        ``"standard"``: subtract the mean, divide by the standard deviation of the training rows (a constant feature
        becomes 0). ``"none"``: leave features unscaled, as with the LETOR collections. The others normalize each
        feature within its query, as a hybrid search does (`kinrank.data.normalization.normalize`); `raw_weights` are
        then weights for normalized features.
    missing : {"error", "zero", "mean"}
        How to handle NaN: raise an error, or replace it with 0 or with the mean of the feature over training rows.
        A feature that is normalized within its query has no mean to fill in: use ``"zero"`` there.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [3.0], [np.nan]], group=[3])
    >>> Preparer().fit(queries).transform(queries.X).ravel().round(2)
    array([-1.22,  1.22,  0.  ], dtype=float32)
    """

    def __init__(self, scale: Scale = "standard", missing: Missing = "mean") -> None:
        self.scale = scale
        self.missing = missing

    def fit(self, queries: QuerySet) -> Self:
        """Compute means and standard deviations block by block, so that the rows can be memory-mapped."""
        check_choice("scale", self.scale, get_args(Scale))
        if self.missing not in ("error", "zero", "mean"):
            raise ParameterError(f"missing must be 'error', 'zero' or 'mean', got {self.missing!r}")
        self.check(queries.X, queries)
        X = queries.X
        n_rows, n_features = X.shape
        self.fill_: Float64 = _mean(X) if self.missing == "mean" else np.zeros(n_features)
        self.center_: Float64 = np.zeros(n_features)
        self.factor_: Float64 = np.ones(n_features)
        if self.scale != "standard":
            return self
        for block in _blocks(X):
            self.center_ += self._filled(block).sum(axis=0, dtype=np.float64) / n_rows
        variance = np.zeros(n_features)
        for block in _blocks(X):
            centered = self._filled(block) - self.center_
            variance += np.einsum("ij,ij->j", centered, centered) / n_rows
        deviation = np.sqrt(variance)
        # Rounding gives a constant feature a tiny deviation; dividing by it would amplify noise.
        constant = deviation <= 1e-6 * np.maximum(np.abs(self.center_), np.finfo(np.float32).tiny)
        self.factor_ = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation))
        return self

    @property
    def normalization(self) -> Normalization | None:
        """How features are normalized within their query; None if they are not."""
        return normalization_of(self.scale)

    def check(self, X: NDArray[Any], queries: QuerySet | None = None) -> None:
        """Raise if a row cannot be prepared; with `queries`, the error names the query."""
        for start, block in zip(range(0, len(X), _ROWS_AT_ONCE), _blocks(X), strict=True):
            bad = np.isinf(block) if self._fills else ~np.isfinite(block)
            if bad.any():
                row, column = np.argwhere(bad)[0]
                remedy = "missing='mean' or missing='zero' (--set missing=mean on the command line)"
                if self.normalization is not None:
                    remedy = f"missing='zero' (--set missing=zero on the command line), as engines do ({self.scale})"
                value = float(block[row, column])
                raise DataError(_error_message(int(start + row), int(column), value, queries, remedy))

    def transform(self, X: NDArray[Any], queries: QuerySet | None = None) -> Float32:
        """Return prepared rows, of one query if `queries` are not given; with them, errors name the query."""
        self.check(X, queries)
        if self.normalization is not None:
            X = normalize(X, np.array([0, len(X)]) if queries is None else queries.offsets, self.normalization)
        if self.scale != "standard":
            return np.ascontiguousarray(self._filled(X))
        prepared = np.empty(X.shape, dtype=np.float32)
        _standardize(self._filled(X), self.center_, self.factor_, prepared)
        return prepared

    def apply(self, queries: QuerySet) -> QuerySet:
        """Return the queries with prepared features."""
        return queries.replace(X=self.transform(queries.X, queries))

    def raw_weights(self, weights: Float64) -> Float64:
        """Return weights for raw features that rank like `weights` on prepared ones."""
        return weights * self.factor_

    def get_state(self) -> State:
        """Return the fitted arrays."""
        return {"fill": self.fill_, "center": self.center_, "factor": self.factor_}

    def set_state(self, state: State) -> Self:
        """Restore the fitted arrays."""
        self.fill_, self.center_, self.factor_ = state["fill"], state["center"], state["factor"]
        return self

    @property
    def _fills(self) -> bool:
        return self.missing == "zero" or (self.missing == "mean" and self.normalization is None)

    def _filled(self, X: NDArray[Any]) -> Float32:
        if not self._fills:
            return X
        return np.where(np.isnan(X), self.fill_.astype(np.float32), X)


def _error_message(row: int, column: int, value: float, queries: QuerySet | None, remedy: str) -> str:
    place = f"row {row}"
    feature = f"feature {column}"
    if queries is not None:
        query = int(np.searchsorted(queries.offsets, row, side="right")) - 1
        # Counted within the query, which does not depend on how rows were sorted or split into blocks.
        place = f"candidate {row - int(queries.offsets[query]) + 1} of query {queries.qid[query].item()!r}"
        feature = f"feature {queries.feature_names[column]!r}"
    if np.isinf(value):
        return f"{feature} is infinite in {place}: clip it or leave the row out"
    return f"{feature} is missing (NaN) in {place}: pass {remedy}"


def _mean(X: NDArray[Any]) -> Float64:
    """Return the mean of each feature over rows without NaN; 0 if all are NaN."""
    total, count = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for block in _blocks(X):
        total += np.nansum(block, axis=0, dtype=np.float64)
        count += np.count_nonzero(~np.isnan(block), axis=0)
    return total / np.maximum(count, 1)


def _blocks(X: NDArray[Any]) -> list[NDArray[Any]]:
    return [X[start : start + _ROWS_AT_ONCE] for start in range(0, len(X), _ROWS_AT_ONCE)]


@numba.njit(cache=True, nogil=True)
def _standardize(X, center, factor, prepared):  # type: ignore[no-untyped-def]
    """Compute (x - center) factor in float64, in one pass and without a temporary array."""
    for row in range(X.shape[0]):
        for column in range(X.shape[1]):
            prepared[row, column] = (np.float64(X[row, column]) - center[column]) * factor[column]
