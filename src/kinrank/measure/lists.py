"""Lists in ranked order, all queries at once: the one sort that measures share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.data.columns import as_ids
from kinrank.errors import DataError, ParameterError

Ties = Literal["order", "pessimistic", "optimistic", "average", "doc_id"]
TIES: tuple[Ties, ...] = get_args(Ties)

Float = NDArray[np.float64]
Int = NDArray[np.int64]
Rows = NDArray[np.bool_] | slice

ALL_ROWS = slice(None)


@dataclass(frozen=True, eq=False)
class RankedLists:
    """The grades of every query in the order of the scores, best first.

    Attributes
    ----------
    grades : float64 array of shape (rows,)
        In ranked order within each query.
    offsets : int64 array of shape (queries + 1,)
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
    tie_start : int64 array of shape (rows,), or None
        The first row of the tie that each row belongs to; None where every tie has been broken.
    """

    grades: Float
    offsets: Int
    tie_start: Int | None = None

    @cached_property
    def sizes(self) -> Int:
        """Documents of each query."""
        return np.diff(self.offsets)

    @cached_property
    def query(self) -> Int:
        """The query of each row, by position."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def position(self) -> Int:
        """The rank of each row in its list, from 1."""
        position: Int = np.arange(1, len(self.grades) + 1) - self.offsets[self.query]
        return position

    @cached_property
    def ideal(self) -> Float:
        """The grades in their best possible order."""
        return self.grades[np.lexsort((-self.grades, self.query))]

    def head(self, k: int | None) -> Rows:
        """The rows at rank `k` or better; all of them where k is None."""
        return ALL_ROWS if k is None else self.position <= k

    def total(self, values: NDArray[Any], rows: Rows = ALL_ROWS) -> Float:
        """Sum of `values`, given for some of the rows, by query.

        Counted query by query, not as a difference of one long cumulative sum, whose rounding grows with the
        number of rows. A query without rows sums to 0.
        """
        return _sum_by(self.query[rows], values, len(self.sizes))

    def running(self, combine: np.ufunc, values: Float, k: int | None) -> Float:
        """``combine.accumulate`` within each list, down to rank `k`; what stands below is meaningless.

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

    def tie_total(self, values: NDArray[Any]) -> Float:
        """Sum of `values` over the tie of each row; without ties, the values themselves."""
        if self.tie_start is None:
            return np.asarray(values, dtype=np.float64)
        return _sum_by(self.tie_start, values, len(values))[self.tie_start]

    def tie_mean(self, values: NDArray[Any]) -> Float:
        """Expected `values` of each row when its tie is shuffled."""
        return self.tie_total(values) / self.tie_total(np.ones(len(values)))


def rank(
    scores: ArrayLike,
    y: ArrayLike,
    offsets: ArrayLike,
    ties: Ties = "order",
    doc_id: ArrayLike | None = None,
    qid: NDArray[Any] | None = None,
) -> RankedLists:
    """Order the documents of every query by score, best first.

    Parameters
    ----------
    scores, y
        Score and grade of each row; rows of one query lie together.
    offsets
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
    ties
        What decides between equal scores: "order" (the earlier row first), "pessimistic" or "optimistic" (the
        worse or the better grade first), "doc_id" (as trec_eval: document ids compared as text, the last one
        first), or "average": nothing does, and measures give their expectation over random order.
    doc_id
        The document of each row, for ``ties="doc_id"``.
    qid
        Names of the queries for error messages; their positions where not given.

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
            f"the grade of query {_query_of(row, bounds, names)}, row {row} is {grade[row]}: grades count from 0; "
            "raise negative grades to 0, or drop rows that are not judged"
        )
    query = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
    keys: tuple[NDArray[Any], ...] = (-score, query)
    if ties == "pessimistic":
        keys = (grade, *keys)
    elif ties == "optimistic":
        keys = (-grade, *keys)
    elif ties == "doc_id":
        keys = (-_text_rank(doc_id, len(score)), *keys)
    order = np.lexsort(keys)  # stable: what the keys leave equal stays in the given order
    tie_start = _tie_starts(score[order], query) if ties == "average" else None
    return RankedLists(grade[order], bounds, tie_start)


def _sum_by(group: Int, values: NDArray[Any], n_groups: int) -> Float:
    return np.asarray(np.bincount(group, weights=values, minlength=n_groups), dtype=np.float64)


def _bounds(offsets: ArrayLike) -> Int:
    bounds = np.asarray(offsets)
    if bounds.ndim != 1 or bounds.dtype.kind not in "iu" or not len(bounds) or bounds[0] != 0:
        raise DataError(f"offsets must be whole numbers starting with 0, got {bounds.dtype} of shape {bounds.shape}")
    bounds = bounds.astype(np.int64)
    if np.any(np.diff(bounds) < 0):
        query = int(np.argmax(np.diff(bounds) < 0))
        raise DataError(f"offsets must not fall, got {bounds[query]} then {bounds[query + 1]} at query {query}")
    return bounds


def _rows(values: ArrayLike, name: str, bounds: Int, names: NDArray[Any]) -> Float:
    rows = np.asarray(values, dtype=np.float64)
    if rows.shape != (bounds[-1],):
        raise DataError(f"{name} must have one value per row ({bounds[-1]}, by the offsets), got shape {rows.shape}")
    if not np.all(np.isfinite(rows)):
        row = int(np.argmin(np.isfinite(rows)))
        raise DataError(
            f"{name} of query {_query_of(row, bounds, names)}, row {row} is {rows[row]}: a list can only be measured "
            "when every document has a number; fill or drop that row"
        )
    return rows


def _query_of(row: int, bounds: Int, names: NDArray[Any]) -> str:
    query = int(np.searchsorted(bounds, row, side="right")) - 1
    return repr(names[query].item())


def _text_rank(doc_id: ArrayLike | None, n_rows: int) -> Int:
    if doc_id is None:
        raise ParameterError('ties="doc_id" needs document ids: pass doc_id=, or choose another rule for ties')
    ids = as_ids(doc_id, "doc_id")
    if len(ids) != n_rows:
        raise DataError(f"doc_id must have one id per row ({n_rows}), got {len(ids)}")
    text_rank: Int = np.unique(ids.astype(np.str_), return_inverse=True)[1]
    return text_rank


def _tie_starts(score: Float, query: Int) -> Int:
    new = np.ones(len(score), dtype=bool)
    new[1:] = (score[1:] != score[:-1]) | (query[1:] != query[:-1])
    start: Int = np.flatnonzero(new)[np.cumsum(new) - 1]
    return start
