"""QuerySet: candidates grouped by query, the one form in which data walks through kinrank."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank import folder
from kinrank.arrays import Float32
from kinrank.data.grouping import as_ids, group_by_qid, offsets_of
from kinrank.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

KIND = "queries"
COLUMN = "column."  # what the file of a query column begins with


@dataclass(frozen=True, eq=False, repr=False)
class QuerySet:
    """Candidates of queries: rows of one query lie together, always.

    Build one with `from_arrays`, `from_table`, `read_letor` or `open`; the constructor takes rows that are
    already grouped.

    Attributes
    ----------
    X : float32 array of shape (rows, features)
        Missing values are NaN and stay NaN.
    y : float32 array of shape (rows,), or None
        Grades, higher is better; None where nothing is judged.
    offsets : int64 array of shape (queries + 1,)
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
    qid : array of shape (queries,)
        The id of each query, as given.
    doc_id : array of shape (rows,), or None
        The id of each document, as given.
    feature_names : tuple of str
        One name per column of X.
    query_columns : mapping of str to array of shape (queries,)
        What else is known of each query: its text, the group it must not be split from, its intent.
    row_order : int64 array of shape (rows,), or None
        Where each row stood in the arrays the caller gave; None where nothing moved.

    Examples
    --------
    >>> queries = QuerySet.from_arrays([[1.0], [2.0], [3.0]], y=[0, 1, 1], qid=["a", "b", "a"])
    >>> queries
    QuerySet(2 queries, 3 rows, 1 features, judged)
    >>> queries.qid.tolist(), queries.X.ravel().tolist()
    (['a', 'b'], [1.0, 3.0, 2.0])
    >>> queries.in_caller_order(queries.X.ravel()).tolist()
    [1.0, 2.0, 3.0]
    >>> queries[1:].qid.tolist()
    ['b']
    """

    X: Float32
    y: Float32 | None
    offsets: NDArray[np.int64]
    qid: NDArray[Any]
    doc_id: NDArray[Any] | None = None
    feature_names: tuple[str, ...] = ()
    query_columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    row_order: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.X.ndim != 2:
            raise DataError(f"X must have two dimensions, rows and features, got shape {self.X.shape}")
        if len(self.offsets) != len(self.qid) + 1 or self.offsets[0] != 0 or self.offsets[-1] != len(self.X):
            raise DataError(
                f"offsets must run from 0 to the {len(self.X)} rows of X with one step per query, got "
                f"{len(self.offsets)} offsets from {self.offsets[0]} to {self.offsets[-1]} for {len(self.qid)} queries"
            )
        if (self.offsets[1:] <= self.offsets[:-1]).any():
            query = int(np.argmax(self.offsets[1:] <= self.offsets[:-1]))
            raise DataError(f"offsets must ascend, query {query} has no rows: leave empty queries out")
        for name, values in (("y", self.y), ("doc_id", self.doc_id)):
            if values is not None and values.shape != (len(self.X),):
                raise DataError(f"{name} must have one value per row of X ({len(self.X)}), got shape {values.shape}")
        for name, values in self.query_columns.items():
            if len(values) != len(self.qid):
                raise DataError(f"column {name!r} must have one value per query ({len(self.qid)}), got {len(values)}")
        names = self.feature_names or default_names(self.X.shape[1])
        if len(names) != self.X.shape[1] or len(set(names)) != len(names):
            raise DataError(
                f"feature_names must be {self.X.shape[1]} different names, one per column of X, got {len(names)} "
                f"with {len(set(names))} different"
            )
        object.__setattr__(self, "feature_names", tuple(names))
        object.__setattr__(self, "query_columns", dict(self.query_columns))

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        y: ArrayLike | None = None,
        *,
        qid: ArrayLike | None = None,
        group: ArrayLike | None = None,
        doc_id: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        query_columns: Mapping[str, ArrayLike] | None = None,
    ) -> QuerySet:
        """Build from rows in any order.

        Parameters
        ----------
        X
            Features, one row per candidate.
        y
            Grades, one per row.
        qid
            The query of each row, in any order; rows are sorted once and `in_caller_order` undoes it.
        group
            Instead of `qid`: how many rows each query has, in order. Queries are then named 0, 1, 2, ...
        doc_id
            The document of each row.
        feature_names
            One per column; f1, f2, ... where not given.
        query_columns
            Name to one value per query, queries in order of first appearance.
        """
        features = np.asarray(X, dtype=np.float32)
        if features.ndim != 2:
            raise DataError(f"X must have two dimensions, rows and features, got shape {features.shape}")
        order = None
        if qid is not None and group is not None:
            raise DataError("qid and group both given: pass one of them")
        if qid is not None:
            row_ids = as_ids(qid, "qid")
            if len(row_ids) != len(features):
                raise DataError(f"qid must have one id per row of X ({len(features)}), got {len(row_ids)}")
            ids, offsets, order = group_by_qid(row_ids)
        elif group is not None:
            offsets = offsets_of(group, len(features))
            ids = np.arange(len(offsets) - 1)
        else:
            raise DataError("qid is missing: pass qid= (the query of each row) or group= (rows per query)")
        grades = None if y is None else _grades(y)
        docs = None if doc_id is None else as_ids(doc_id, "doc_id")
        for name, values in (("y", grades), ("doc_id", docs)):
            if values is not None and len(values) != len(features):
                raise DataError(f"{name} must have one value per row of X ({len(features)}), got {len(values)}")
        if order is not None:
            features = features[order]
            grades = None if grades is None else grades[order]
            docs = None if docs is None else docs[order]
        return cls(
            X=features,
            y=grades,
            offsets=offsets,
            qid=ids,
            doc_id=docs,
            feature_names=() if feature_names is None else tuple(feature_names),
            query_columns={name: _plain(values) for name, values in (query_columns or {}).items()},
            row_order=order,
        )

    @classmethod
    def from_table(
        cls, table: pa.Table | pd.DataFrame, *, qid: str = "qid", y: str = "y", doc_id: str = "doc_id"
    ) -> QuerySet:
        """Build from a pandas or Arrow table; see `kinrank.data.tables.from_table`."""
        from kinrank.data import tables

        return tables.from_table(table, qid=qid, y=y, doc_id=doc_id)

    def to_table(self) -> pa.Table:
        """As an Arrow table that `from_table` reads back; see `kinrank.data.tables.to_table`."""
        from kinrank.data import tables

        return tables.to_table(self)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> QuerySet:
        """Open a folder written by `save`, memory-mapped: nothing is read until it is looked at.

        Parameters
        ----------
        path
            The folder.
        verify
            Also compare every file with its SHA-256, which reads all of it.
        """
        meta, arrays = folder.read(path, KIND, verify=verify)
        return cls(
            X=arrays["X"],
            y=arrays.get("y"),
            offsets=arrays["offsets"],
            qid=arrays["qid"],
            doc_id=arrays.get("doc_id"),
            feature_names=tuple(meta["feature_names"]),
            query_columns={k.removeprefix(COLUMN): v for k, v in arrays.items() if k.startswith(COLUMN)},
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write as a folder that `open` maps into memory; see `kinrank.data.stream.write_folder`."""
        from kinrank.data import stream

        stream.write_folder([self], path)

    @classmethod
    def concat(cls, parts: Sequence[QuerySet]) -> QuerySet:
        """Several sets as one; their queries must be different ones.

        Examples
        --------
        >>> a = QuerySet.from_arrays([[1.0]], qid=["a"])
        >>> b = QuerySet.from_arrays([[2.0]], qid=["b"])
        >>> QuerySet.concat([a, b])
        QuerySet(2 queries, 2 rows, 1 features, not judged)
        """
        if not parts:
            raise DataError("no sets to put together: pass at least one")
        first, *rest = parts
        for part in rest:
            if part.feature_names != first.feature_names:
                raise DataError(f"features differ: {first.feature_names} and {part.feature_names}")
            if (part.qid.dtype.kind == "U") != (first.qid.dtype.kind == "U"):
                raise DataError("query ids are text in one set and numbers in another: make them alike")
        qid = np.concatenate([part.qid for part in parts])
        if len(np.unique(qid)) != len(qid):
            ids, counts = np.unique(qid, return_counts=True)
            raise DataError(
                f"query {ids[counts > 1][0].item()!r} is in more than one part: rename it, or keep one of them"
            )
        judged = all(part.y is not None for part in parts)
        named = all(part.doc_id is not None for part in parts)
        columns = set(first.query_columns).intersection(*(part.query_columns for part in rest))
        return cls(
            X=np.concatenate([part.X for part in parts]),
            y=np.concatenate([part.grades for part in parts]) if judged else None,
            offsets=offsets_of(np.concatenate([part.sizes for part in parts])),
            qid=qid,
            doc_id=np.concatenate([part.doc_id for part in parts if part.doc_id is not None]) if named else None,
            feature_names=first.feature_names,
            query_columns={c: np.concatenate([part.query_columns[c] for part in parts]) for c in sorted(columns)},
        )

    def __len__(self) -> int:
        return len(self.qid)

    def __iter__(self) -> Iterator[QuerySet]:
        return (self[i : i + 1] for i in range(len(self)))

    def __getitem__(self, queries: int | slice | ArrayLike) -> QuerySet:
        """Some of the queries: neighbors by slice without copying, any others by index or mask."""
        if isinstance(queries, int | np.integer):
            if not -len(self) <= queries < len(self):
                raise IndexError(f"query {queries} of {len(self)}")
            start = int(queries) % len(self)
            queries = slice(start, start + 1)
        if isinstance(queries, slice):
            start, stop, step = queries.indices(len(self))
            if step == 1:
                offsets = np.asarray(self.offsets[start : max(start, stop) + 1])
                return self._pick(slice(offsets[0], offsets[-1]), slice(start, stop), offsets - offsets[0])
            queries = np.arange(start, stop, step)
        index = np.asarray(queries)
        if index.dtype == np.bool_:
            if index.shape != (len(self),):
                raise DataError(f"a mask must have one value per query ({len(self)}), got shape {index.shape}")
            index = np.flatnonzero(index)
        elif index.size and not np.issubdtype(index.dtype, np.integer):
            raise DataError(f"queries are picked by position, slice or mask, got {index.dtype}")
        index = index.astype(np.int64)
        return self._pick(self.rows_of(index), index, offsets_of(self._sizes_of(index)))

    def _pick(
        self, rows: slice | NDArray[np.int64], queries: slice | NDArray[np.int64], offsets: NDArray[np.int64]
    ) -> QuerySet:
        return QuerySet(
            X=self.X[rows],
            y=None if self.y is None else self.y[rows],
            offsets=offsets,
            qid=self.qid[queries],
            doc_id=None if self.doc_id is None else self.doc_id[rows],
            feature_names=self.feature_names,
            query_columns={name: values[queries] for name, values in self.query_columns.items()},
        )

    def rows_of(self, queries: ArrayLike) -> NDArray[np.int64]:
        """The rows of some queries, in the order of those queries."""
        index = np.asarray(queries, dtype=np.int64)
        sizes = self._sizes_of(index)
        ends = np.cumsum(sizes)
        shift = np.repeat(self.offsets[:-1][index] - (ends - sizes), sizes)
        rows: NDArray[np.int64] = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) + shift
        return rows

    def _sizes_of(self, queries: NDArray[np.int64]) -> NDArray[np.int64]:
        # Not `sizes[queries]`, which would look at every query of a set that may hold millions.
        sizes: NDArray[np.int64] = self.offsets[1:][queries] - self.offsets[:-1][queries]
        return sizes

    def in_caller_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """One value per row, put back into the row order of the arrays that the caller gave."""
        if self.row_order is None:
            return values
        restored = np.empty_like(values)
        restored[self.row_order] = values
        return restored

    def replace(self, **changes: Any) -> QuerySet:
        """The same queries with other features, grades or columns."""
        return replace(self, **changes)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many candidates each query has."""
        return np.diff(self.offsets)

    @property
    def query_of_row(self) -> NDArray[np.int64]:
        """The position of each row's query."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)

    @property
    def grades(self) -> Float32:
        """The grades, or an error where nothing is judged."""
        if self.y is None:
            raise DataError("these queries are not judged: pass y=, one grade per row (in a file: column y)")
        return self.y

    @property
    def n_rows(self) -> int:
        """Number of candidates over all queries."""
        return len(self.X)

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.X.shape[1])

    def __repr__(self) -> str:
        judged = "not judged" if self.y is None else "judged"
        return f"QuerySet({len(self):,} queries, {self.n_rows:,} rows, {self.n_features:,} features, {judged})"


def default_names(n_features: int) -> tuple[str, ...]:
    """The names of features that were given none: f1, f2, ..."""
    return tuple(f"f{i}" for i in range(1, n_features + 1))


def _grades(y: ArrayLike) -> Float32:
    grades = np.asarray(y, dtype=np.float32)
    if grades.ndim != 1:
        raise DataError(f"y must have one dimension, got shape {grades.shape}")
    if not np.all(np.isfinite(grades)):
        row = int(np.argmin(np.isfinite(grades)))
        raise DataError(f"y[{row}] is {grades[row]}: a grade must be a number; drop rows that are not judged")
    return grades


def _plain(values: ArrayLike) -> NDArray[Any]:
    """A column that can be stored and mapped: objects become text, None empty text."""
    column = np.asarray(values)
    if column.dtype != object:
        return column
    return np.array(["" if value is None else str(value) for value in column.tolist()], dtype=np.str_)
