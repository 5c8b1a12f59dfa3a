"""The arrays of queries with candidates: how they are made and grouped by query, and how to pick queries and rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32, State
from kinrank.errors import DataError, ParameterError

# --- convert what callers pass to arrays that can be sorted, stored and memory-mapped ---------------------------------


def as_ids(values: ArrayLike, name: str) -> NDArray[Any]:
    """Return ids as an integer or text array, never as objects."""
    ids = np.asarray(values)
    if ids.ndim != 1:
        raise DataError(f"{name} must have one dimension, got shape {ids.shape}")
    if ids.dtype.kind == "U" and isinstance(values, list | tuple) and values:
        return _ids_from_objects(list(values), name)  # NumPy turns a number among strings into a string
    if ids.dtype.kind in "iuU":
        return ids
    if ids.dtype.kind == "S":
        return np.char.decode(ids, "utf-8")
    if ids.dtype.kind == "f":
        whole = np.isfinite(ids) & (ids == np.floor(ids))
        if not whole.all():
            row = int(np.argmin(whole))
            raise DataError(f"{name}[{row}] is {ids[row]}, but ids are whole numbers or text: fill it or drop the row")
        return ids.astype(np.int64)
    if not ids.size:
        return ids.astype(np.str_)
    return _ids_from_objects(ids.tolist(), name)


def _ids_from_objects(values: list[Any], name: str) -> NDArray[Any]:
    kind = str if isinstance(values[0], str) else int
    for row, value in enumerate(values):
        if not isinstance(value, kind) or isinstance(value, bool):
            raise DataError(
                f"{name}[{row}] is {value!r} ({type(value).__name__}), but ids are all whole numbers or all text: fill "
                "it or drop the row"
            )
    return np.array(values, dtype=np.str_ if kind is str else np.int64)


def as_grades(y: ArrayLike) -> Float32:
    """Return grades as a float32 array of finite numbers, or NaN for rows that are not judged."""
    check_grades_are_numbers(y)
    grades = np.asarray(y, dtype=np.float32)
    if grades.ndim != 1:
        raise DataError(f"y must have one dimension, got shape {grades.shape}")
    if np.any(np.isinf(grades)):
        row = int(np.argmax(np.isinf(grades)))
        raise DataError(f"y[{row}] is {grades[row]}, but a grade must be finite, or NaN if the row is not judged")
    return grades


def check_grades_are_numbers(y: ArrayLike) -> None:
    """Raise `DataError` if a grade is text that is no number.

    Examples
    --------
    >>> check_grades_are_numbers(["bad", "good"])
    Traceback (most recent call last):
    ...
    kinrank.errors.DataError: y[0] is 'bad', but grades are numbers, higher is better: map each name to a number
    """
    array = np.asarray(y)
    if array.dtype.kind not in "OSU":
        return
    for row, value in enumerate(array.ravel().tolist()):
        try:
            float(value)
        except ValueError:
            raise DataError(
                f"y[{row}] is {value!r}, but grades are numbers, higher is better: map each name to a number"
            ) from None
        except TypeError:
            return  # another kind of object, which NumPy's own message describes


def as_weights(sample_weight: ArrayLike) -> Float32:
    """Return row weights as a float32 array of finite numbers that are not negative."""
    weights = np.asarray(sample_weight, dtype=np.float32)
    if weights.ndim != 1:
        raise DataError(f"sample_weight must have one dimension, got shape {weights.shape}")
    wrong = ~np.isfinite(weights) | (weights < 0)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise DataError(f"sample_weight[{row}] is {weights[row]}, but a weight must be finite and not negative")
    return weights


def as_column(values: ArrayLike) -> NDArray[Any]:
    """Return a query column. Objects become text, None becomes empty text."""
    column = np.asarray(values)
    if column.dtype != object:
        return column
    return np.array(["" if value is None else str(value) for value in column.tolist()], dtype=np.str_)


# --- names and positions of features ----------------------------------------------------------------------------------


def default_names(n_features: int) -> tuple[str, ...]:
    """Return the default feature names: f1, f2, ..."""
    return tuple(f"f{i}" for i in range(1, n_features + 1))


def check_names(names: Sequence[str], n_features: int) -> tuple[str, ...]:
    """Return feature names as a tuple; raise DataError if there is not one unique name per feature."""
    unique = set(names)
    if len(names) != n_features or len(unique) != n_features:
        raise DataError(
            f"feature_names must be {n_features} different names, one per column of X, got {len(names)} names, "
            f"{len(unique)} of them different"
        )
    return tuple(names)


def feature_position(feature: str | int, feature_names: Sequence[str]) -> int:
    """Return the column of a feature given by name or by column.

    Examples
    --------
    >>> feature_position("bm25", ["title", "bm25"])
    1
    """
    if isinstance(feature, str):
        if feature not in feature_names:
            raise ParameterError(
                f"reference {feature!r} is not a feature: set reference= to the one that ranks candidates today, "
                f"out of {', '.join(feature_names)}"
            )
        return feature_names.index(feature)
    if not 0 <= feature < len(feature_names):
        raise ParameterError(f"reference must be a column from 0 to {len(feature_names) - 1}, got {feature}")
    return int(feature)


@dataclass(frozen=True, eq=False)
class Groups:
    """Which rows belong to which query, once the rows are sorted."""

    qid: NDArray[Any]
    """The id of each query, in order of first appearance; shape (queries,)."""
    offsets: NDArray[np.int64]
    """Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``; shape (queries + 1,)."""
    row_order: NDArray[np.int64] | None = None
    """``rows[row_order]`` are the sorted rows; None if they were already grouped; shape (rows,)."""

    @property
    def query_of_row(self) -> NDArray[np.int64]:
        """The position of each row's query."""
        return np.repeat(np.arange(len(self.qid), dtype=np.int64), np.diff(self.offsets))


def group_by_qid(qid: ArrayLike) -> Groups:
    """Group rows by query id, keeping the order of rows within each query.

    Examples
    --------
    >>> groups = group_by_qid(["b", "a", "b"])
    >>> groups.qid.tolist(), groups.offsets.tolist(), groups.row_order.tolist()
    (['b', 'a'], [0, 2, 3], [0, 2, 1])
    """
    ids = as_ids(qid, "qid")
    starts = _run_starts(ids)
    runs = ids[starts]
    unique, first, run_query = np.unique(runs, return_index=True, return_inverse=True)
    if len(unique) == len(runs):
        return Groups(runs, np.append(starts, len(ids)).astype(np.int64))
    # np.unique sorts by id; rank the queries by first appearance instead.
    by_appearance = np.argsort(first)
    rank = np.empty_like(by_appearance)
    rank[by_appearance] = np.arange(len(unique))
    lengths = np.diff(np.append(starts, len(ids)))
    query_of_row = np.repeat(rank[run_query], lengths)
    order = np.argsort(query_of_row, kind="stable").astype(np.int64)
    sizes = np.bincount(query_of_row)
    return Groups(unique[by_appearance], offsets_of(sizes), order)


def group_rows(n_rows: int, qid: ArrayLike | None, group: ArrayLike | None) -> Groups:
    """Group rows by one of two arguments: `qid`, the query of each row, or `group`, the number of rows per query."""
    if qid is not None and group is not None:
        raise DataError("got both qid and group: pass one of them")
    if qid is not None:
        ids = as_ids(qid, "qid")
        if len(ids) != n_rows:
            raise DataError(f"qid must have one id per row of X ({n_rows}), got {len(ids)}")
        return group_by_qid(ids)
    if group is not None:
        offsets = offsets_of(group, n_rows)
        return Groups(np.arange(len(offsets) - 1), offsets)
    raise DataError("qid is missing: pass qid= (the query of each row) or group= (rows per query)")


def offsets_of(sizes: ArrayLike, n_rows: int | None = None) -> NDArray[np.int64]:
    """Return the row offsets of queries with the given numbers of rows.

    Examples
    --------
    >>> offsets_of([2, 3]).tolist()
    [0, 2, 5]
    """
    counts = np.asarray(sizes)
    if counts.ndim != 1 or (counts.size and not np.issubdtype(counts.dtype, np.integer)):
        raise DataError(
            f"group must be a list of whole numbers, one per query, got {counts.dtype} of shape {counts.shape}"
        )
    if counts.size and counts.min() < 1:
        query = int(np.argmin(counts >= 1))
        raise DataError(f"group[{query}] is {counts[query]}, but a query needs at least one row: drop empty queries")
    offsets = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=offsets[1:])
    if n_rows is not None and offsets[-1] != n_rows:
        raise DataError(f"group sums to {offsets[-1]} rows, but X has {n_rows}: the counts must cover every row")
    return offsets


def check_offsets(offsets: NDArray[np.int64], n_queries: int, n_rows: int) -> None:
    """Raise DataError if offsets do not divide the rows into non-empty queries."""
    if len(offsets) != n_queries + 1 or offsets[0] != 0 or offsets[-1] != n_rows:
        raise DataError(
            f"offsets must run from 0 to the {n_rows} rows of X with one step per query, got {len(offsets)} offsets "
            f"from {offsets[0]} to {offsets[-1]} for {n_queries} queries"
        )
    if (offsets[1:] <= offsets[:-1]).any():
        query = int(np.argmax(offsets[1:] <= offsets[:-1]))
        raise DataError(f"offsets must ascend, but query {query} has no rows: drop empty queries")


def sizes_of(offsets: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of rows of the given queries, without reading the offsets of any other."""
    sizes: NDArray[np.int64] = offsets[1:][queries] - offsets[:-1][queries]
    return sizes


def rows_of(offsets: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of the given queries, query by query.

    Examples
    --------
    >>> rows_of(np.array([0, 2, 5]), np.array([1, 0])).tolist()
    [2, 3, 4, 0, 1]
    """
    sizes = sizes_of(offsets, queries)
    ends = np.cumsum(sizes)
    shift = np.repeat(offsets[:-1][queries] - (ends - sizes), sizes)
    rows: NDArray[np.int64] = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) + shift
    return rows


def shuffle_within_queries(offsets: NDArray[np.int64], seed: int = 0) -> NDArray[np.int64]:
    """Return a row order that shuffles the rows of each query.

    Use it for tools that break ties by input order: judgments often come sorted by grade, which would inflate their
    measures.

    Examples
    --------
    >>> order = shuffle_within_queries(np.array([0, 3, 5]))
    >>> sorted(order[:3].tolist()), sorted(order[3:].tolist())
    ([0, 1, 2], [3, 4])
    """
    sizes = np.diff(offsets)
    query = np.repeat(np.arange(len(sizes)), sizes)
    order: NDArray[np.int64] = np.lexsort((np.random.default_rng(seed).random(len(query)), query))
    return order


def _run_starts(ids: NDArray[Any]) -> NDArray[np.int64]:
    if not len(ids):
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))


def as_positions(selected: ArrayLike, count: int, one: str, many: str) -> NDArray[np.int64]:
    """Return the positions that a mask or an array of positions selects out of `count`.

    Examples
    --------
    >>> as_positions([True, False, True], 3, "row", "rows").tolist()
    [0, 2]
    """
    index = np.asarray(selected)
    if index.dtype == np.bool_:
        if index.shape != (count,):
            raise DataError(f"a mask must have one value per {one} ({count}), got shape {index.shape}")
        return np.flatnonzero(index)
    if index.size and not np.issubdtype(index.dtype, np.integer):
        raise DataError(f"select {many} by position, slice or mask, got {index.dtype}")
    out = (index < -count) | (index >= count)
    if out.any():
        raise IndexError(f"{one} {index[out].flat[0]} is out of range for {count} {many}")
    return index.astype(np.int64)


ROW_ARRAYS = ("y", "doc_id", "doc_title", "sample_weight")
"""The arrays next to X with one value per row, each optional."""
COLUMN, DOCUMENT_COLUMN = "column.", "document."
"""Prefixes of the arrays of query columns and of document columns in `QuerySet.get_state`."""


@dataclass(frozen=True, eq=False, repr=False)
class QueryRows:
    """Candidates of queries, with the rows of a query adjacent; see `kinrank.data.queryset.QuerySet`.

    Selecting takes every array along: no other code picks rows of single arrays.
    """

    X: Float32
    y: Float32 | None
    offsets: NDArray[np.int64]
    qid: NDArray[Any]
    doc_id: NDArray[Any] | None = None
    feature_names: tuple[str, ...] = ()
    query_columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    sample_weight: Float32 | None = None
    doc_title: NDArray[Any] | None = None
    row_order: NDArray[np.int64] | None = None
    doc_columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.X.ndim != 2:
            raise DataError(f"X must have two dimensions, rows and features, got shape {self.X.shape}")
        check_offsets(self.offsets, len(self.qid), len(self.X))
        check_lengths(len(self.X), {**self._row_arrays, **self.doc_columns})
        for name, values in self.query_columns.items():
            if len(values) != len(self.qid):
                raise DataError(f"column {name!r} must have one value per query ({len(self.qid)}), got {len(values)}")
        names = check_names(self.feature_names or default_names(self.X.shape[1]), self.X.shape[1])
        object.__setattr__(self, "feature_names", names)
        object.__setattr__(self, "query_columns", dict(self.query_columns))
        object.__setattr__(self, "doc_columns", dict(self.doc_columns))

    def __len__(self) -> int:
        return len(self.qid)

    def __iter__(self) -> Iterator[Self]:
        return (self[i : i + 1] for i in range(len(self)))

    def __getitem__(self, queries: int | slice | ArrayLike) -> Self:
        """Select queries: by slice without copying, or by position, index array or mask."""
        if isinstance(queries, int | np.integer):
            if not -len(self) <= queries < len(self):
                raise IndexError(f"query {queries} is out of range for {len(self)} queries")
            start = int(queries) % len(self)
            queries = slice(start, start + 1)
        if isinstance(queries, slice):
            start, stop, step = queries.indices(len(self))
            if step == 1:
                offsets = np.asarray(self.offsets[start : max(start, stop) + 1])
                return self._select(slice(offsets[0], offsets[-1]), slice(start, stop), offsets - offsets[0])
            queries = np.arange(start, stop, step)
        index = as_positions(queries, len(self), "query", "queries")
        return self._select(self.rows_of(index), index, offsets_of(sizes_of(self.offsets, index)))

    def take_rows(self, rows: ArrayLike) -> Self:
        """Select rows, by position or mask, with all that belongs to them; queries without any are left out.

        The rows of a query stay together and come in the order given; queries keep their order.

        Examples
        --------
        >>> from kinrank import QuerySet
        >>> queries = QuerySet.from_arrays([[1.0], [2.0], [3.0]], y=[1, 0, 2], qid=["a", "a", "b"])
        >>> queries.take_rows(queries.X[:, 0] < 2.5)
        QuerySet(1 queries, 2 rows, 1 features, judged)
        >>> queries.take_rows([2, 1, 0]).X.ravel().tolist()
        [2.0, 1.0, 3.0]
        """
        index = as_positions(rows, self.n_rows, "row", "rows")
        owner = self.query_of_row[index]
        sizes = np.bincount(owner, minlength=len(self))
        return self._select(
            index[np.argsort(owner, kind="stable")], np.flatnonzero(sizes), offsets_of(sizes[sizes > 0])
        )

    def _select(
        self, rows: slice | NDArray[np.int64], queries: slice | NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> Self:
        return type(self)(
            X=self.X[rows],
            offsets=offsets,
            qid=self.qid[queries],
            feature_names=self.feature_names,
            query_columns={name: values[queries] for name, values in self.query_columns.items()},
            doc_columns=take_arrays(self.doc_columns, rows),
            **take_arrays(self._row_arrays, rows),
        )

    @property
    def _row_arrays(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ROW_ARRAYS}

    def rows_of(self, queries: ArrayLike) -> NDArray[np.int64]:
        """Return the rows of the given queries, query by query."""
        return rows_of(self.offsets, np.asarray(queries, dtype=np.int64))

    def in_caller_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """Reorder one value per row to the row order of the caller's arrays."""
        if self.row_order is None:
            return values
        restored = np.empty_like(values)
        restored[self.row_order] = values
        return restored

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some attributes replaced."""
        return replace(self, **changes)

    def get_state(self) -> State:
        """Return the arrays by name, as they are stored in a folder; `from_state` is the inverse."""
        columns = {COLUMN + name: values for name, values in self.query_columns.items()}
        arrays = {name: values for name, values in self._row_arrays.items() if values is not None}
        columns |= {DOCUMENT_COLUMN + name: values for name, values in self.doc_columns.items()}
        return {"X": self.X, "offsets": self.offsets, "qid": self.qid, **arrays, **columns}

    def fingerprint(self) -> str:
        """Return a hash of everything in the set."""
        digest = hashlib.sha256(repr(self.feature_names).encode())
        for name, array in self.get_state().items():
            digest.update(f"{name} {array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of candidates of each query."""
        return np.diff(self.offsets)

    @property
    def query_of_row(self) -> NDArray[np.int64]:
        """The position of each row's query."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)

    @property
    def grades(self) -> Float32:
        """The grades that models learn from and measures count: 0 for rows that are not judged.

        Raises DataError if no row is judged.
        """
        if self.y is None:
            raise DataError("these queries are not judged: pass y=, one grade per row (in a file: column y)")
        judged = self.judged
        return self.y if judged.all() else np.where(judged, self.y, np.float32(0.0))

    @property
    def judged(self) -> NDArray[np.bool_]:
        """Whether each row has a grade."""
        return np.zeros(self.n_rows, dtype=np.bool_) if self.y is None else ~np.isnan(self.y)

    def only_judged(self) -> Self:
        """Return the judged rows, of the queries that have any.

        Examples
        --------
        >>> from kinrank import QuerySet
        >>> queries = QuerySet.from_arrays([[1.0], [2.0], [3.0]], y=[1, np.nan, np.nan], qid=["a", "a", "b"])
        >>> queries, queries.grades.tolist()
        (QuerySet(2 queries, 3 rows, 1 features, 1 row judged), [1.0, 0.0, 0.0])
        >>> queries.only_judged()
        QuerySet(1 queries, 1 rows, 1 features, judged)
        """
        return self.take_rows(self.judged)

    def only_weighted(self) -> Self:
        """Return the rows with a weight above 0, of the queries that have any.

        Examples
        --------
        >>> from kinrank import QuerySet
        >>> queries = QuerySet.from_arrays([[1.0], [2.0]], y=[1, 0], qid=["a", "a"], sample_weight=[0.5, 0.0])
        >>> queries.only_weighted()
        QuerySet(1 queries, 1 rows, 1 features, judged)
        """
        return self if self.sample_weight is None else self.take_rows(self.sample_weight > 0)

    @property
    def row_weights(self) -> Float32:
        """The weight of each row, 1 if there are none."""
        return np.ones(self.n_rows, dtype=np.float32) if self.sample_weight is None else self.sample_weight

    @property
    def n_rows(self) -> int:
        """The number of candidates of all queries."""
        return len(self.X)

    @property
    def n_features(self) -> int:
        """The number of columns of X."""
        return int(self.X.shape[1])

    def __repr__(self) -> str:
        count = int(self.judged.sum())
        judged = "not judged" if self.y is None else f"{count:,} row{'s' if count != 1 else ''} judged"
        if self.y is not None and count == self.n_rows:
            judged = "judged"
        return f"QuerySet({len(self):,} queries, {self.n_rows:,} rows, {self.n_features:,} features, {judged})"


def check_lengths(n_rows: int, arrays: Mapping[str, Any]) -> None:
    """Raise unless each array has one value per row."""
    for name, values in arrays.items():
        if values is not None and values.shape != (n_rows,):
            raise DataError(f"{name} must have one value per row of X ({n_rows}), got shape {values.shape}")


def take_arrays(arrays: Mapping[str, Any], rows: slice | NDArray[np.int64]) -> dict[str, Any]:
    """Return some rows of each array."""
    return {name: None if values is None else values[rows] for name, values in arrays.items()}
