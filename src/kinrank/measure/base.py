"""The base class of measures, and the ranked lists of all queries, sorted once and shared by measures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64, Int64
from kinrank.data.query_rows import as_ids, as_weights
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, ParameterError
from kinrank.registry import check_choice

# --- ranked lists -----------------------------------------------------------------------------------------------------


Ties = Literal["order", "pessimistic", "optimistic", "average", "doc_id"]
TIES: tuple[Ties, ...] = get_args(Ties)

Rows = NDArray[np.bool_] | slice

ALL_ROWS = slice(None)


@dataclass(frozen=True, eq=False)
class RankedLists:
    """The grades of each query in descending order of the scores."""

    grades: Float64
    """In ranked order within each query; shape (rows,)."""
    offsets: Int64
    """Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``; shape (queries + 1,)."""
    tie_start: Int64 | None = None
    """The first row of the tie of each row; None if all ties are broken; shape (rows,)."""

    @cached_property
    def sizes(self) -> Int64:
        """The number of documents of each query."""
        return np.diff(self.offsets)

    @cached_property
    def query(self) -> Int64:
        """The position of each row's query."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def position(self) -> Int64:
        """The rank of each row in its list, from 1."""
        position: Int64 = np.arange(1, len(self.grades) + 1) - self.offsets[self.query]
        return position

    @cached_property
    def ideal(self) -> Float64:
        """The grades in their best possible order."""
        return self.grades[np.lexsort((-self.grades, self.query))]

    def head(self, k: int | None) -> Rows:
        """Return the rows at rank `k` or better; all rows if `k` is None."""
        return ALL_ROWS if k is None else self.position <= k

    def total(self, values: NDArray[Any], rows: Rows = ALL_ROWS) -> Float64:
        """Return the sum of `values`, one per row of `rows`, for each query; 0 for a query without rows.

        Summed query by query: the rounding error of a difference of cumulative sums grows with the number of rows.
        """
        return _sum_by(self.query[rows], values, len(self.sizes))

    def running(self, combine: np.ufunc, values: Float64, k: int | None) -> Float64:
        """Return ``combine.accumulate`` within each list, valid down to rank `k`.

        By doubling: log2(k) passes over all rows instead of a loop over queries.
        """
        result = values.copy()
        last = int(self.sizes.max(initial=0)) if k is None else k
        step = 1
        while step < last:
            rows = np.flatnonzero((self.position > step) & (self.position <= last))
            result[rows] = combine(result[rows - step], result[rows])
            step *= 2
        return result

    def tie_total(self, values: NDArray[Any]) -> Float64:
        """Return the sum of `values` over the tie of each row."""
        if self.tie_start is None:
            return np.asarray(values, dtype=np.float64)
        return _sum_by(self.tie_start, values, len(values))[self.tie_start]

    def tie_mean(self, values: NDArray[Any]) -> Float64:
        """Return the expected value of each row when ties are in random order."""
        return self.tie_total(values) / self.tie_total(np.ones(len(values)))


def rank(
    scores: ArrayLike,
    y: ArrayLike,
    offsets: ArrayLike,
    ties: Ties = "order",
    doc_id: ArrayLike | None = None,
    qid: NDArray[Any] | None = None,
    sample_weight: ArrayLike | None = None,
) -> RankedLists:
    """Sort the documents of each query by descending score.

    Parameters
    ----------
    scores, y
        The score and the grade of each row. The rows of a query are adjacent.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
    ties
        How equal scores are ordered: "order" (the earlier row first), "pessimistic" or "optimistic" (the lower or the
        higher grade first), "doc_id" (the last document id as text first, as in trec_eval), or "average" (measures
        return their expectation over random orders).
    doc_id
        The document of each row, for ``ties="doc_id"``.
    qid
        Query ids for error messages; their positions by default.
    sample_weight
        The weight of each row. Nothing is known about rows of weight 0, which are left out of the lists.

    Examples
    --------
    >>> rank([0.1, 0.9, 0.5], [2, 0, 1], [0, 2, 3]).grades.tolist()
    [0.0, 2.0, 1.0]
    """
    bounds = _bounds(offsets)
    names = np.arange(len(bounds) - 1) if qid is None else qid
    score = _rows(scores, "scores", bounds, names)
    grade = _rows(y, "y", bounds, names)
    if np.any(grade < 0):
        row = int(np.argmax(grade < 0))
        raise DataError(
            f"y of query {_query_of(row, bounds, names)}, row {row} is {grade[row]}, but grades start at 0: set "
            "negative grades to 0, or drop rows that are not judged"
        )
    query = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    if sample_weight is not None:
        known = _rows(as_weights(sample_weight), "sample_weight", bounds, names) > 0
        score, grade, query = score[known], grade[known], query[known]
        bounds = np.r_[0, np.cumsum(np.bincount(query, minlength=len(bounds) - 1))]  # a list may be empty
        doc_id = None if doc_id is None else np.asarray(doc_id)[known]
    keys: tuple[NDArray[Any], ...] = (-score, query)
    if ties == "pessimistic":
        keys = (grade, *keys)
    elif ties == "optimistic":
        keys = (-grade, *keys)
    elif ties == "doc_id":
        keys = (-_text_rank(doc_id, len(score)), *keys)
    order = np.lexsort(keys)  # stable: rows with equal keys keep their order
    tie_start = _tie_starts(score[order], query) if ties == "average" else None
    return RankedLists(grade[order], bounds, tie_start)


def _sum_by(group: Int64, values: NDArray[Any], n_groups: int) -> Float64:
    return np.asarray(np.bincount(group, weights=values, minlength=n_groups), dtype=np.float64)


def _bounds(offsets: ArrayLike) -> Int64:
    bounds = np.asarray(offsets)
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu" or not len(bounds) or bounds[0] != 0:
        raise DataError(f"offsets must be whole numbers from 0, got {bounds.dtype} of shape {bounds.shape}")
    bounds = bounds.astype(np.int64)
    if np.any(np.diff(bounds) < 0):
        query = int(np.argmax(np.diff(bounds) < 0))
        raise DataError(f"offsets must not decrease, got {bounds[query]} then {bounds[query + 1]} at query {query}")
    return bounds


def _rows(values: ArrayLike, name: str, bounds: Int64, names: NDArray[Any]) -> Float64:
    rows = np.asarray(values, dtype=np.float64)
    if rows.shape != (bounds[-1],):
        raise DataError(f"{name} must have one value per row ({bounds[-1]} by the offsets), got shape {rows.shape}")
    if not np.all(np.isfinite(rows)):
        row = int(np.argmin(np.isfinite(rows)))
        raise DataError(
            f"{name} of query {_query_of(row, bounds, names)}, row {row} is {rows[row]}, but every row needs a "
            "number: fill it or drop the row"
        )
    return rows


def _query_of(row: int, bounds: Int64, names: NDArray[Any]) -> str:
    query = int(np.searchsorted(bounds, row, side="right")) - 1
    return repr(names[query].item())


def _text_rank(doc_id: ArrayLike | None, n_rows: int) -> Int64:
    if doc_id is None:
        raise ParameterError('ties="doc_id" needs document ids: pass doc_id=, or use other ties')
    ids = as_ids(doc_id, "doc_id")
    if len(ids) != n_rows:
        raise DataError(f"doc_id must have one id per row ({n_rows}), got {len(ids)}")
    text_rank: Int64 = np.unique(ids.astype(np.str_), return_inverse=True)[1]
    return text_rank


def _tie_starts(score: Float64, query: Int64) -> Int64:
    new = np.ones(len(score), dtype=bool)
    new[1:] = (score[1:] != score[:-1]) | (query[1:] != query[:-1])
    start: Int64 = np.flatnonzero(new)[np.cumsum(new) - 1]
    return start


# --- measures ---------------------------------------------------------------------------------------------------------


NoRelevant = Literal[0, 1, "skip"]


@dataclass(frozen=True, kw_only=True, repr=False)
class Measure(ABC):
    """A measure of ranked lists. Two measures are equal if all their conventions are.

    Examples
    --------
    >>> from kinrank.measure import NDCG
    >>> lenient = NDCG(gain="linear", no_relevant=1) @ 10
    >>> lenient
    NDCG(no_relevant=1, gain='linear') @ 10
    >>> str(lenient)
    'NDCG@10'
    >>> lenient == NDCG(gain="linear", no_relevant=1) @ 10
    True
    >>> lenient.per_query(scores=[3.0, 2.0, 1.0], y=[1, 0, 0], offsets=[0, 2, 3]).tolist()
    [1.0, 1.0]
    """

    name: ClassVar[str]

    k: int | None = None
    """The cutoff, written ``NDCG @ 10``; None measures the whole list."""
    ties: Ties = "order"
    """How equal scores are ordered: "order" (the earlier row first), "pessimistic", "optimistic", "average" (the exact
    expectation over random orders) or "doc_id" (the last id first, as in trec_eval).
    """
    no_relevant: NoRelevant = 0
    """The value of a query without relevant documents; "skip" makes it NaN and excludes it from the mean."""

    def __post_init__(self) -> None:
        if self.k is not None and (isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 1):
            raise ParameterError(f"the cutoff must be a whole number from 1, got {self.name} @ {self.k!r}")
        check_choice("ties", self.ties, TIES)
        check_choice("no_relevant", self.no_relevant, (0, 1, "skip"))

    def __matmul__(self, k: int) -> Self:
        return replace(self, k=k)

    def __call__(self, **conventions: Any) -> Self:
        """Return the measure with other conventions."""
        known = [field.name for field in fields(self)]
        for name in conventions:
            if name not in known:
                raise ParameterError(f"{self.name} has no convention {name!r}: choose one of {', '.join(known)}")
        return replace(self, **conventions)

    def per_query(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        offsets: ArrayLike,
        doc_id: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Float64:
        """Return the value of each query.

        Parameters
        ----------
        scores, y
            The score and the grade of each row. The rows of a query are adjacent.
        offsets
            Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
        doc_id
            The document of each row, for ``ties="doc_id"``.
        sample_weight
            The weight of each row. Rows of weight 0 are left out of the lists; a rank cannot count in part, so that
            other weights do not change the value of a query, only its share in the `mean`.

        Returns
        -------
        float64 array of shape (queries,)
            NaN for queries that ``no_relevant="skip"`` excludes.
        """
        return self.of_lists(rank(scores, y, offsets, self.ties, doc_id, sample_weight=sample_weight))

    def mean(
        self,
        scores: ArrayLike,
        y: ArrayLike,
        offsets: ArrayLike,
        doc_id: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the mean of `per_query` over the queries that are not excluded; NaN if all are.

        A query counts as much as the mean weight of its rows.

        Examples
        --------
        >>> from kinrank.measure import NDCG
        >>> round(NDCG.mean([2.0, 1.0, 2.0, 1.0], [1, 0, 0, 1], [0, 2, 4], sample_weight=[3, 3, 1, 1]), 4)
        0.9077
        """
        values = self.per_query(scores, y, offsets, doc_id, sample_weight)
        return mean_of(values, None if sample_weight is None else query_means(sample_weight, offsets))

    def of_lists(self, lists: RankedLists) -> Float64:
        """Return the value of each ranked list; `lists` must be ranked with the ``ties`` of this measure."""
        values = self._values(lists)
        empty = ~self._has_relevant(lists)
        values[empty] = np.nan if self.no_relevant == "skip" else self.no_relevant
        return values

    @abstractmethod
    def _values(self, lists: RankedLists) -> Float64:
        """Return the value of each query; any finite value for queries without relevant documents."""

    @abstractmethod
    def _has_relevant(self, lists: RankedLists) -> NDArray[np.bool_]:
        """Return which queries have a relevant document."""

    def __str__(self) -> str:
        return self.name if self.k is None else f"{self.name}@{self.k}"

    def __repr__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.name != "k" and getattr(self, field.name) != field.default
        ]
        conventions = f"({', '.join(changed)})" if changed else ""
        return f"{self.name}{conventions}" + ("" if self.k is None else f" @ {self.k}")


def mean_of(values: Float64, weights: Float64 | None = None) -> float:
    """Return the mean of the values that are not NaN, or NaN without a warning if all are or weigh 0."""
    kept = ~np.isnan(values)
    if weights is not None:
        kept &= weights > 0
    if not kept.any():
        return float("nan")
    return float(values[kept].mean() if weights is None else np.average(values[kept], weights=weights[kept]))


def query_means(values: ArrayLike, offsets: ArrayLike) -> Float64:
    """Return the mean of the values of each query; 0 for a query without rows."""
    bounds = np.asarray(offsets)
    sizes = np.diff(bounds)
    query = np.repeat(np.arange(len(sizes)), sizes)
    total = np.bincount(query, weights=np.asarray(values, dtype=np.float64), minlength=len(sizes))
    return np.asarray(total / np.maximum(sizes, 1))


# --- a ranking, query by query ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """The values of measures for one ranking; ``evaluation[NDCG @ 10]`` is the mean."""

    qid: NDArray[Any]
    """The query ids, in the order of the values; shape (queries,)."""
    per_query: Mapping[Measure, Float64]
    """One value per query; NaN for queries that the measure excludes; shape (queries,)."""

    @property
    def means(self) -> dict[Measure, float]:
        """The mean of each measure over the queries that it does not exclude."""
        return {measure: mean_of(values) for measure, values in self.per_query.items()}

    def __getitem__(self, measure: Measure) -> float:
        return mean_of(self.per_query[measure])

    def __repr__(self) -> str:
        means = ", ".join(f"{measure!r}: {mean:.4f}" for measure, mean in self.means.items())
        return f"Evaluation({len(self.qid):,} queries, {means})"


def evaluate(queries: QuerySet, scores: ArrayLike, measures: Iterable[Measure]) -> Evaluation:
    """Compute measures of a ranking of judged queries, sorting once per rule for ties.

    Parameters
    ----------
    queries
        Judged queries. Rows of weight 0 are left out of the lists.
    scores
        One score per row of `queries`; higher is better.
    measures
        The measures to compute.

    Examples
    --------
    >>> from kinrank.measure import AP, NDCG
    >>> queries = QuerySet.from_arrays([[3.0], [2.0], [1.0]], y=[0, 1, 1], qid=["a", "a", "b"])
    >>> evaluation = evaluate(queries, queries.X[:, 0], [NDCG @ 10, AP])
    >>> evaluation
    Evaluation(2 queries, NDCG @ 10: 0.8155, AP: 0.7500)
    >>> evaluation[AP], evaluation.per_query[AP].tolist()
    (0.75, [0.5, 1.0])
    """
    ranked: dict[Ties, RankedLists] = {}
    values: dict[Measure, Float64] = {}
    for measure in measures:
        if measure.ties not in ranked:
            ranked[measure.ties] = rank(
                scores,
                queries.grades,
                queries.offsets,
                measure.ties,
                queries.doc_id,
                queries.qid,
                queries.sample_weight,
            )
        values[measure] = measure.of_lists(ranked[measure.ties])
    return Evaluation(queries.qid, MappingProxyType(values))
