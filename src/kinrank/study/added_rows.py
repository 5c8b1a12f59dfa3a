"""Find candidates that the engine did not return and that their features give away.

A log of the engine's hits, completed by the relevant documents that it did not return, leaks the grade: the added rows
have no engine score, and they are all relevant. A model learns that a missing score is best, looks perfect in every
study, and meets no such row when it ranks the engine's hits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float32, Float64
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, LeakError

MIN_RELEVANT = 0.9
"""Share of relevant rows among those with the sign, from which they count as added."""
MIN_SHARE = 0.05
"""Share of the relevant rows that must have the sign."""
MAX_OTHERS = 0.005
"""Share of the other rows that may have the sign."""
MIN_QUERIES = 10
"""Number of queries that must have rows with the sign."""
_SHARED = 0.01
_MAX_QUERIES = 20_000

Rows = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class AddedRows:
    """Rows that their features tell apart, and that are almost always relevant."""

    sign: str
    """What the rows have in common."""
    feature: str | None
    """The feature that is empty in these rows; None if the number of empty features tells them apart."""
    n_empty: int
    """The number of empty features from which a row has the sign."""
    relevant: float
    others: float
    """Share of rows with the sign among relevant rows and among the others."""
    lowest: Float64
    """The value of each feature that counts as empty; minus infinity if there is none; shape (features,)."""

    def rows(self, queries: QuerySet) -> Rows:
        """Return which rows of these queries have the sign."""
        empty = _empty(queries, self.lowest)
        if self.feature is not None:
            return empty[:, queries.feature_names.index(self.feature)]
        rows: Rows = empty.sum(axis=1) >= self.n_empty
        return rows

    def drop(self, queries: QuerySet) -> QuerySet:
        """Return the queries without these rows, and without queries that have no other row."""
        kept = queries.take_rows(~self.rows(queries))
        if not len(kept):
            raise DataError(f"no candidate would be left without those with {self.sign}: check the data")
        return kept

    def __str__(self) -> str:
        return (
            f"the features give the grade away: {self.relevant:.0%} of the relevant candidates have {self.sign}, and "
            f"{self.others:.1%} of the others. They look like relevant documents that were added to the hits of an "
            "engine. No such candidate will be there to rank"
        )

    def error(self) -> LeakError:
        """Return an error for data that must not be learned from."""
        return LeakError(
            f"{self}: log the engine's hits only (kinrank log), or train without these rows "
            "(kinrank train --leaks drop)"
        )


def find_added_rows(queries: QuerySet) -> AddedRows | None:
    """Find rows that were added to the hits of an engine because they are relevant; None if there are none.

    A value is empty if it is missing, or the lowest of its feature and shared by many rows, such as the score 0 of a
    clause that does not match.
    Rows with an empty value, or with many, count as added if almost all of them are relevant, if almost no other row is
    like them, and if that contradicts the remaining rows: among these, higher values, or more of them, are better.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score = rng.uniform(1.0, 9.0, (50, 20))
    >>> y = score + rng.normal(size=score.shape) > 8
    >>> y[:, 0], score[:, 0] = True, 0.0  # a relevant document that the engine did not return
    >>> queries = QuerySet.from_arrays(score.reshape(-1, 1), y.ravel(), group=[20] * 50, feature_names=["bm25"])
    >>> found = find_added_rows(queries)
    >>> found.sign, found.drop(queries)
    ("'bm25' empty", QuerySet(50 queries, 950 rows, 1 features, judged))
    >>> find_added_rows(found.drop(queries)) is None
    True
    """
    step = -(-len(queries) // _MAX_QUERIES)
    sample = queries[::step] if step > 1 else queries
    if not sample.n_rows:
        return None
    relevant = sample.grades > 0
    lowest = _shared_minima(sample.X)
    tried = (_added(sample, relevant, sign, lowest) for sign in _signs(sample, _empty(sample, lowest)))
    return max((added for added in tried if added is not None), key=lambda added: added.relevant, default=None)


def _shared_minima(X: Float32) -> Float64:
    """Return the lowest value of each feature if 1% of the rows share it, else minus infinity."""
    minima = np.array([np.nanmin(column, initial=np.inf) for column in X.T])
    shares = np.mean(minima == X, axis=0)
    return np.where(shares >= _SHARED, minima, -np.inf)


def _empty(queries: QuerySet, lowest: Float64) -> Rows:
    empty: Rows = np.isnan(queries.X) | (lowest >= queries.X)
    return empty


@dataclass(frozen=True, eq=False)
class _Sign:
    """What may tell rows apart: which rows have it, and a value by which the others are ordered."""

    name: str
    feature: str | None
    n_empty: int
    rows: Rows
    value: Float64


def _signs(queries: QuerySet, empty: Rows) -> Iterator[_Sign]:
    for column, name in enumerate(queries.feature_names):
        value = np.nan_to_num(queries.X[:, column].astype(np.float64))
        yield _Sign(f"{name!r} empty", name, 1, empty[:, column], value)
    count = empty.sum(axis=1)
    for n_empty in np.unique(count[count > 1]).tolist():
        name = f"at least {n_empty} features empty"
        yield _Sign(name, None, n_empty, count >= n_empty, -count.astype(np.float64))


def _added(queries: QuerySet, relevant: Rows, sign: _Sign, lowest: Float64) -> AddedRows | None:
    """Return the rows with the sign if they count as added."""
    rows = sign.rows
    n_relevant, n_others = np.count_nonzero(relevant), np.count_nonzero(~relevant)
    with_sign = np.count_nonzero(rows & relevant), np.count_nonzero(rows & ~relevant)
    if not n_others or with_sign[0] < max(1.0, MIN_SHARE * n_relevant):
        return None
    if with_sign[0] < MIN_RELEVANT * sum(with_sign) or with_sign[1] > MAX_OTHERS * n_others:
        return None
    if len(np.unique(queries.query_of_row[rows])) < MIN_QUERIES:
        return None
    if not _higher_is_better(queries, relevant, ~rows, sign.value):
        return None
    return AddedRows(sign.name, sign.feature, sign.n_empty, with_sign[0] / n_relevant, with_sign[1] / n_others, lowest)


def _higher_is_better(queries: QuerySet, relevant: Rows, rest: Rows, value: Float64) -> bool:
    """Return whether, among these rows, relevant ones have the higher mean value in more queries than the lower."""

    def mean(rows: Rows) -> Float64:
        query = queries.query_of_row[rows]
        counts = np.bincount(query, minlength=len(queries))
        totals = np.bincount(query, weights=value[rows], minlength=len(queries))
        means: Float64 = np.divide(totals, counts, out=np.full(len(queries), np.nan), where=counts > 0)
        return means

    difference = mean(rest & relevant) - mean(rest & ~relevant)
    return bool(np.count_nonzero(difference > 0) > np.count_nonzero(difference < 0))
