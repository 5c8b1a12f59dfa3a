"""Find leaks: test queries that were seen in training, near-duplicates, and features that give the grade away."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.preprocessing import normalize

from kinrank.arrays import Float32, Float64, Int64
from kinrank.data.queryset import QuerySet
from kinrank.data.split import groups_of
from kinrank.data.texts import VECTORS
from kinrank.errors import DataError, LeakError
from kinrank.learn.ranksvm import JudgedPairs
from kinrank.measure.base import mean_of
from kinrank.rankers._local.choose import MEASURE

_COMMON = 20  # items of more queries than this, and of more than 1% of them, are too common to count


@dataclass(frozen=True, eq=False)
class Items:
    """Items of each query."""

    query: Int64
    """Position of the query of each item."""
    item: NDArray[Any]
    """The items; several queries may have the same item."""
    n_queries: int
    """Number of queries, with or without items."""


def rows_as_items(queries: QuerySet) -> Items:
    """Return the feature rows of each query as hashes.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0, 2.0], [3.0, 0.0], [1.0, 2.0]], qid=["a", "a", "b"])
    >>> first, second, third = rows_as_items(queries).item.tolist()
    >>> first == third, first == second
    (True, False)
    """
    # A random odd factor per column, modulo 2^64: different rows collide about once in 2^64.
    factors = np.random.default_rng(0).integers(0, 2**63, queries.n_features, dtype=np.uint64) * np.uint64(2)
    hashed = np.zeros(queries.n_rows, dtype=np.uint64)
    for column, factor in enumerate(factors + np.uint64(1)):
        values = np.ascontiguousarray(queries.X[:, column]) + np.float32(0)  # turns -0 into 0
        hashed += values.view(np.uint32).astype(np.uint64) * factor
    return Items(queries.query_of_row, hashed, len(queries))


def relevant_as_items(queries: QuerySet) -> Items | None:
    """Return the documents of each query with a grade above 0; None if documents have no ids."""
    if queries.doc_id is None:
        return None
    relevant = queries.grades > 0
    return Items(queries.query_of_row[relevant], queries.doc_id[relevant].astype(np.str_), len(queries))


def most_similar(one: Items, other: Items) -> tuple[Int64, Float64, Int64, NDArray[np.bool_]]:
    """Return, for each query of one set, the most similar query of the other set.

    Items of many queries are not counted as shared.

    Returns
    -------
    position : int64 array
        Position of the most similar query in the other set.
    share : float64 array
        Jaccard similarity; 0 if nothing is shared.
    shared : int64 array
        Number of shared items.
    same : bool array
        Whether both have the same items, at least two of them and not only items of many queries.
    """
    items, codes = np.unique(np.concatenate([one.item, other.item]), return_inverse=True)
    a, b = (
        _incidence(side.query, code, side.n_queries, len(items))
        for side, code in ((one, codes[: len(one.item)]), (other, codes[len(one.item) :]))
    )
    sizes_a, sizes_b = (np.asarray(incidence.sum(axis=1)).ravel() for incidence in (a, b))
    common = np.asarray(b.sum(axis=0)).ravel() > max(_COMMON, other.n_queries / 100)
    shared = (a @ sparse.diags_array((~common).astype(np.float64)) @ b.T).tocsr()
    position = np.zeros(one.n_queries, dtype=np.int64)
    share = np.zeros(one.n_queries)
    count = np.zeros(one.n_queries, dtype=np.int64)
    rows = np.repeat(np.arange(one.n_queries), np.diff(shared.indptr))
    jaccard = shared.data / (sizes_a[rows] + sizes_b[shared.indices] - shared.data)
    ascending = np.argsort(jaccard, kind="stable")  # the last assignment wins: the largest
    share[rows[ascending]] = jaccard[ascending]
    position[rows[ascending]] = shared.indices[ascending]
    count[rows[ascending]] = shared.data[ascending]
    both = np.asarray(a.multiply(b[position]).sum(axis=1)).ravel()
    same = (count > 0) & (both > 1) & (both == sizes_a) & (both == sizes_b[position])
    return position, share, count, same


def _incidence(query: Int64, item: Int64, n_queries: int, n_items: int) -> Any:
    matrix = sparse.csr_array((np.ones(len(query)), (query, item)), shape=(n_queries, n_items))
    matrix.data[:] = 1.0  # count repeated items once
    return matrix


# --- a feature that holds the grade: it ranks near perfectly by itself -----------------------------------------------


NEAR_PERFECT = 0.99
"""NDCG@10 from which a ranking is too good to be believed."""
MIN_TELLING = 10
"""Number of queries with different grades that it takes to tell."""
_MAX_TELLING = 1_000


@dataclass(frozen=True)
class _Giveaway:
    """A feature that ranks near perfectly by itself."""

    feature: str
    """Its name."""
    quality: float
    """NDCG@10 of the order by this feature, over queries with different grades."""
    by_chance: float
    """The same for documents in random order."""

    def __str__(self) -> str:
        return (
            f"feature {self.feature!r} alone ranks at NDCG@10 = {self.quality:.4f} (random order: "
            f"{self.by_chance:.4f}), which is too good to be believed"
        )


def find_giveaway(queries: QuerySet) -> _Giveaway | None:
    """Return the feature that ranks best by itself, up or down, if it is near perfect; None if no feature is.

    Queries whose documents all have one grade are left out: any order of them is perfect.
    """
    telling = np.flatnonzero(JudgedPairs.from_queries(queries).pairs > 0)
    if len(telling) < MIN_TELLING:
        return None
    sample = queries[telling[:: -(-len(telling) // _MAX_TELLING)]]

    def quality(scores: np.ndarray) -> float:
        return mean_of(MEASURE.per_query(scores, sample.grades, sample.offsets))

    by_chance = quality(np.zeros(sample.n_rows))
    if by_chance >= NEAR_PERFECT:
        return None
    values = np.nan_to_num(sample.X.astype(np.float64))
    qualities = [max(quality(column), quality(-column)) for column in values.T]
    top = int(np.argmax(qualities)) if qualities else 0
    if not qualities or qualities[top] < NEAR_PERFECT:
        return None
    return _Giveaway(sample.feature_names[top], qualities[top], by_chance)


# --- candidates that the engine did not return and that their features give away -------------------------------------
#
# A log of the engine's hits, completed by the relevant documents that it did not return, leaks the grade: the added
# rows have no engine score, and they are all relevant. A model learns that a missing score is best, looks perfect in
# every study, and meets no such row when it ranks the engine's hits.


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


# --- test queries that were seen in training, and near-duplicates ----------------------------------------------------


How = Literal["id", "group", "text", "rows", "words", "vector", "some rows", "relevant documents"]

TEXTS = ("text", "query")
"""Query columns with the text of a query; the first that exists is used."""
NEAR_COSINE = 0.95
NEAR_SHARE = 0.5
_LABELS = {
    "id": "same id",
    "group": "same group",
    "text": "same text",
    "rows": "same feature rows",
    "words": "same words",
    "vector": f"vector with cosine of at least {NEAR_COSINE}",
    "some rows": "at least half of the feature rows",
    "relevant documents": "at least half of the relevant documents",
}


@dataclass(frozen=True)
class _Leak:
    """Positions of a test query and of a similar training query, and what they have in common."""

    test: int
    train: int
    how: How


@dataclass(frozen=True, eq=False)
class LeakReport:
    """Leaks between training and test queries."""

    n_test: int
    """Number of test queries."""
    seen: tuple[_Leak, ...]
    """Test queries with the same id, group, text or rows as a training query."""
    near: tuple[_Leak, ...]
    """Other test queries with a near-duplicate in training."""
    added: AddedRows | None = None
    """Training candidates that look like relevant documents added to the hits of an engine."""

    @property
    def seen_queries(self) -> NDArray[np.int64]:
        """Positions of the test queries that were seen in training."""
        return np.unique(np.array([leak.test for leak in self.seen], dtype=np.int64))

    @property
    def near_queries(self) -> NDArray[np.int64]:
        """Positions of the test queries with a near-duplicate in training."""
        return np.unique(np.array([leak.test for leak in self.near], dtype=np.int64))

    def raise_if_seen(self, train: QuerySet, test: QuerySet, *, how_to_drop: str = "") -> None:
        """Raise `LeakError` if test queries were seen in training, or if features give the grade away."""
        self.raise_if_added()
        if self.seen:
            first = self.seen[0]
            raise LeakError(
                f"{len(self.seen_queries):,} of {self.n_test:,} test queries were seen in training "
                f"({_counts(self.seen)}); for example, test query {test.qid[first.test].item()!r} is training query "
                f"{train.qid[first.train].item()!r}. Results on them do not carry over to new queries: split by a "
                f"group that keeps them together, or drop them{how_to_drop}"
            )

    def raise_if_added(self) -> None:
        """Raise `LeakError` if features give the grade away."""
        if self.added is not None:
            raise self.added.error()


def leak_warning(reports: Sequence[LeakReport]) -> str | None:
    """Return a warning about added candidates or near-duplicates in one or several folds; None if there are none."""
    added = next((report.added for report in reports if report.added is not None), None)
    if added is not None:
        return str(added)
    near = [leak for report in reports for leak in report.near]
    if not near:
        return None
    queries, tested = sum(len(report.near_queries) for report in reports), sum(report.n_test for report in reports)
    return (
        f"{queries:,} of {tested:,} test queries have a near-duplicate in training ({_counts(near)}): part of the gain "
        "may be memorization; split by group to keep near-duplicates together"
    )


def find_leaks(train: QuerySet, test: QuerySet, *, group: str | None = None) -> LeakReport:
    """Find test queries that were seen in training, near-duplicates, and features that give the grade away.

    Values of the query column `group` must not be in both sets.
    """
    near: list[_Leak] = []
    train_texts, test_texts = _texts(train), _texts(test)
    if train_texts is not None and test_texts is not None:
        near += _same("words", _words(train_texts), _words(test_texts))
    position, share, count, same = most_similar(rows_as_items(test), rows_as_items(train))
    seen = _seen(train, test, group, position, same)
    near += _overlapping("some rows", position, share, count >= 2)
    relevant = relevant_as_items(train), relevant_as_items(test)
    if relevant[0] is not None and relevant[1] is not None:
        position, share, count, _ = most_similar(relevant[1], relevant[0])
        near += _overlapping("relevant documents", position, share, count >= 1)
    if all(VECTORS in queries.query_columns for queries in (train, test)):
        near += _close(train.query_columns[VECTORS], test.query_columns[VECTORS])
    seen_tests = {leak.test for leak in seen}
    near = [leak for leak in near if leak.test not in seen_tests]
    return LeakReport(len(test), tuple(seen), tuple(near), find_added_rows(train))


def _seen(train: QuerySet, test: QuerySet, group: str | None, position: Int64, same: NDArray[np.bool_]) -> list[_Leak]:
    """Return the test queries that were seen in training; for feature rows, given what `most_similar` found."""
    seen = _same("id", train.qid, test.qid)
    if group is not None:
        seen += _same("group", groups_of(train, group), groups_of(test, group))
    texts = _texts(train), _texts(test)
    if texts[0] is not None and texts[1] is not None:
        seen += _same("text", texts[0], texts[1])
    return seen + [_Leak(int(query), int(position[query]), "rows") for query in np.flatnonzero(same)]


def without_copies(
    queries: QuerySet, parts: Sequence[QuerySet], *, group: str | None = None, move: bool
) -> list[QuerySet]:
    """Return parts of which no later one has a copy of a query of an earlier one.

    Copies are queries with the same text, group or feature rows, as `find_leaks` refuses them.

    Parameters
    ----------
    queries
        All queries, in order.
    parts
        What they were split into.
    group
        Query column that was split by.
    move
        Whether copies move to the earlier part; otherwise they are left out.

    Examples
    --------
    >>> columns = {"text": ["alien", "heat", "Alien!"]}
    >>> queries = QuerySet.from_arrays(np.arange(3.0)[:, None], qid=[1, 2, 3], query_columns=columns)
    >>> [part.qid.tolist() for part in without_copies(queries, [queries[:1], queries[1:]], move=True)]
    [[1, 3], [2]]
    >>> [part.qid.tolist() for part in without_copies(queries, [queries[:1], queries[1:]], move=False)]
    [[1], [2]]
    """
    part_of = np.zeros(len(queries), dtype=np.int64)
    for number, part in enumerate(parts):
        part_of[np.isin(queries.qid, part.qid)] = number
    copies = _copies(queries, part_of, group)
    if not move:
        part_of[copies[:, 0]] = -1
    while move and len(copies):  # a query that has moved may have copies itself
        part_of[copies[:, 0]] = part_of[copies[:, 1]]
        copies = _copies(queries, part_of, group)
    return [queries[part_of == number] for number in range(len(parts))]


def _copies(queries: QuerySet, part_of: Int64, group: str | None) -> NDArray[np.int64]:
    """Return the positions of queries of which an earlier part has a copy, and of that copy; shape (copies, 2)."""
    found: list[tuple[int, int]] = []
    for number in range(1, int(part_of.max()) + 1):
        before, here = np.flatnonzero((part_of >= 0) & (part_of < number)), np.flatnonzero(part_of == number)
        if not len(before) or not len(here):
            continue
        earlier, later = queries[before], queries[here]
        position, _, _, same = most_similar(rows_as_items(later), rows_as_items(earlier))
        seen = _seen(earlier, later, group, position, same)
        found += [(int(here[leak.test]), int(before[leak.train])) for leak in seen]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _same(how: How, train: Iterable[Any], test: Iterable[Any]) -> list[_Leak]:
    """Return the queries with the same value in both sets, compared as text; empty values are ignored."""
    positions = {str(value): position for position, value in enumerate(train) if str(value)}
    return [
        _Leak(position, positions[str(value)], how) for position, value in enumerate(test) if str(value) in positions
    ]


def _texts(queries: QuerySet) -> list[str] | None:
    """Return the texts of the queries without case, punctuation and extra spaces."""
    column = next((queries.query_columns[name] for name in TEXTS if name in queries.query_columns), None)
    if column is None or column.dtype.kind != "U":
        return None
    return [" ".join(re.findall(r"\w+", text.casefold())) for text in column.tolist()]


def _words(texts: list[str]) -> list[str]:
    return [" ".join(sorted(set(text.split()))) for text in texts]


def _overlapping(how: How, position: Int64, share: Float64, enough: NDArray[np.bool_]) -> list[_Leak]:
    near = np.flatnonzero((share >= NEAR_SHARE) & enough)
    return [_Leak(int(query), int(position[query]), how) for query in near]


def _close(train: NDArray[Any], test: NDArray[Any]) -> list[_Leak]:
    """Return the queries with a high cosine between their vectors."""
    nearest, distance = pairwise_distances_argmin_min(
        normalize(np.asarray(test, dtype=np.float32)), normalize(np.asarray(train, dtype=np.float32))
    )
    close = np.flatnonzero(distance**2 <= 2 - 2 * NEAR_COSINE)  # of unit vectors: 2 - 2 cos
    return [_Leak(int(query), int(nearest[query]), "vector") for query in close]


def _counts(leaks: Iterable[_Leak]) -> str:
    counts = Counter(leak.how for leak in leaks)
    return ", ".join(f"{_LABELS[how]}: {count:,}" for how, count in counts.items())
