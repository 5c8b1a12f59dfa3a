"""The arrays of queries with candidates, and how to pick queries and rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32, State
from kinrank.data.features import check_names, default_names
from kinrank.data.grouping import as_positions, check_offsets, offsets_of, rows_of, sizes_of
from kinrank.errors import DataError

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
