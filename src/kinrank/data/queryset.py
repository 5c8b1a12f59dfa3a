"""QuerySet: candidates grouped by query, the data type that all of kinrank works with."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32, State
from kinrank.data import folder_format
from kinrank.data.columns import as_column, as_grades, as_ids, as_weights
from kinrank.data.features import check_names, default_names
from kinrank.data.grouping import Groups, check_offsets, group_rows, offsets_of, rows_of, sizes_of
from kinrank.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_COLUMN = "column."  # prefix of the arrays of query columns


@dataclass(frozen=True, eq=False, repr=False)
class QuerySet:
    """Candidates of queries. The rows of a query are always adjacent.

    Build one with `from_arrays`, `from_table`, `read_letor` or `open`; the constructor takes rows that are
    already grouped.

    Attributes
    ----------
    X : float32 array of shape (rows, features)
        Features. Missing values are NaN and stay NaN.
    y : float32 array of shape (rows,), or None
        Grades, higher is better; NaN for rows that are not judged; None if no row is. See `grades` and `judged`.
    offsets : int64 array of shape (queries + 1,)
        Query ``i`` owns rows ``offsets[i]:offsets[i + 1]``.
    qid : array of shape (queries,)
        The id of each query, as given.
    doc_id : array of shape (rows,), or None
        The id of each document, as given.
    feature_names : tuple of str
        One name per column of X.
    query_columns : mapping of str to array of shape (queries,)
        Other values of each query, such as its text, its intent or its group for splits.
    sample_weight : float32 array of shape (rows,), or None
        How much each judgment counts, at least 0; None if all count the same. A pair of documents counts the product
        of their weights.
    row_order : int64 array of shape (rows,), or None
        The position of each row in the caller's arrays; None if the rows were not reordered.

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
    sample_weight: Float32 | None = None
    row_order: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.X.ndim != 2:
            raise DataError(f"X must have two dimensions, rows and features, got shape {self.X.shape}")
        check_offsets(self.offsets, len(self.qid), len(self.X))
        for name, values in (("y", self.y), ("doc_id", self.doc_id), ("sample_weight", self.sample_weight)):
            if values is not None and values.shape != (len(self.X),):
                raise DataError(f"{name} must have one value per row of X ({len(self.X)}), got shape {values.shape}")
        for name, values in self.query_columns.items():
            if len(values) != len(self.qid):
                raise DataError(f"column {name!r} must have one value per query ({len(self.qid)}), got {len(values)}")
        names = check_names(self.feature_names or default_names(self.X.shape[1]), self.X.shape[1])
        object.__setattr__(self, "feature_names", names)
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
        sample_weight: ArrayLike | None = None,
    ) -> QuerySet:
        """Build from rows in any order.

        Parameters
        ----------
        X
            Features, one row per candidate.
        y
            Grades, one per row; NaN if a row is not judged.
        qid
            The query of each row, in any order. Rows are sorted once; `in_caller_order` restores their order.
        group
            Instead of `qid`: the number of rows of each query, in order. Query ids are then 0, 1, 2, ...
        doc_id
            The document of each row.
        feature_names
            One per column; f1, f2, ... by default.
        query_columns
            Values by column name, one per query, with queries in order of first appearance.
        sample_weight
            How much the judgment of each row counts, at least 0.
        """
        features = np.asarray(X, dtype=np.float32)
        if features.ndim != 2:
            raise DataError(f"X must have two dimensions, rows and features, got shape {features.shape}")
        groups = group_rows(len(features), qid, group)
        names = () if feature_names is None else feature_names
        columns = {name: as_column(values) for name, values in (query_columns or {}).items()}
        return cls._from_groups(groups, features, y, doc_id, names, columns, sample_weight)

    @classmethod
    def _from_groups(
        cls,
        groups: Groups,
        X: Float32,
        y: ArrayLike | None,
        doc_id: ArrayLike | None,
        feature_names: Sequence[str],
        query_columns: Mapping[str, NDArray[Any]],
        sample_weight: ArrayLike | None,
    ) -> QuerySet:
        """Sort rows into their groups."""
        grades = None if y is None else as_grades(y)
        documents = None if doc_id is None else as_ids(doc_id, "doc_id")
        weights = None if sample_weight is None else as_weights(sample_weight)
        for name, values in (("y", grades), ("doc_id", documents), ("sample_weight", weights)):
            if values is not None and len(values) != len(X):
                raise DataError(f"{name} must have one value per row of X ({len(X)}), got {len(values)}")
        order = groups.row_order
        if order is not None:
            X = X[order]
            grades = None if grades is None else grades[order]
            documents = None if documents is None else documents[order]
            weights = None if weights is None else weights[order]
        return cls(
            X, grades, groups.offsets, groups.qid, documents, tuple(feature_names), query_columns, weights, order
        )

    @classmethod
    def from_table(
        cls,
        table: pa.Table | pd.DataFrame,
        *,
        qid: str = "qid",
        y: str = "y",
        doc_id: str = "doc_id",
        text: str | None = None,
        features: Sequence[str] | None = None,
        query: Sequence[str] = (),
        drop: Sequence[str] = (),
    ) -> QuerySet:
        """Build from a table with one row per candidate, in any order.

        `kinrank.data.tables` defines which columns are features and which belong to the query.

        Parameters
        ----------
        table
            An Arrow table, a pandas DataFrame, or any object with the Arrow stream protocol (Polars, DuckDB).
            A named index of a DataFrame is a column; an unnamed one is dropped.
        qid
            The column of query ids. Required.
        y
            The column of grades; null if a row is not judged. Without it, the queries are not judged.
        doc_id
            The column of document ids. Optional.
        text
            The column with the text of the query, if it is not named "text".
        features
            The features, by name or by a pattern such as ``bm25_*``; by default all other numeric columns.
        query
            Columns of numbers that belong to the query, such as a group for splits, and are no features. Those that the
            table lacks are ignored.
        drop
            Columns that are not read.

        Raises
        ------
        DataError
            If an id is null, a query column differs within a query, or a column is neither numeric nor text.

        Examples
        --------
        >>> import pyarrow as pa
        >>> table = pa.table({"qid": [1, 1], "y": [1, 0], "bm25": [7.5, None], "text": ["alien", "alien"]})
        >>> queries = QuerySet.from_table(table)
        >>> queries.feature_names, queries.X.tolist(), queries.query_columns["text"].tolist()
        (('bm25',), [[7.5], [nan]], ['alien'])
        """
        from kinrank.data import tables  # imports Arrow, which QuerySet itself does not need

        read = tables.read_table(
            table, qid=qid, y=y, doc_id=doc_id, text=text, features=features, query=query, drop=drop
        )
        return cls._from_groups(
            read.groups, read.X, read.y, read.doc_id, read.feature_names, read.query_columns, read.sample_weight
        )

    def to_table(self) -> pa.Table:
        """Return an Arrow table that `from_table` reads back.

        Its columns are qid, y, doc_id, sample_weight, the features and ``query.NAME``.

        The vector of a query is in its first row and null in the others: repeated, it would be most of the table.

        Examples
        --------
        >>> queries = QuerySet.from_arrays([[7.5], [3.0]], y=[1, 0], qid=[1, 1], query_columns={"intent": ["title"]})
        >>> queries.to_table().column_names
        ['qid', 'y', 'f1', 'query.intent']
        """
        from kinrank.data import tables  # imports Arrow, which QuerySet itself does not need

        return tables.write_table(
            tables.TableArrays(
                Groups(self.qid, self.offsets),
                self.X,
                self.y,
                self.doc_id,
                self.feature_names,
                self.query_columns,
                self.sample_weight,
            )
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, verify: bool = False) -> QuerySet:
        """Open a folder written by `save`. It is memory-mapped: values are read when they are used.

        Parameters
        ----------
        path
            The folder.
        verify
            Also compare every file with its SHA-256, which reads all of it.
        """
        feature_names, state = folder_format.read_folder(path, verify=verify)
        return cls.from_state(state, feature_names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a folder that `open` memory-maps; see `kinrank.data.folder_format.write_folder`."""
        folder_format.write_folder([self], path)

    def get_state(self) -> State:
        """Return the arrays by name, as they are stored in a folder; `from_state` is the inverse."""
        rows = {"y": self.y, "doc_id": self.doc_id, "sample_weight": self.sample_weight}
        return {
            "X": self.X,
            "offsets": self.offsets,
            "qid": self.qid,
            **{name: values for name, values in rows.items() if values is not None},
            **{_COLUMN + name: values for name, values in self.query_columns.items()},
        }

    @classmethod
    def from_state(cls, state: State, feature_names: Sequence[str]) -> QuerySet:
        """Build from the arrays of `get_state`."""
        return cls(
            X=state["X"],
            y=state.get("y"),
            offsets=state["offsets"],
            qid=state["qid"],
            doc_id=state.get("doc_id"),
            feature_names=tuple(feature_names),
            query_columns={k.removeprefix(_COLUMN): v for k, v in state.items() if k.startswith(_COLUMN)},
            sample_weight=state.get("sample_weight"),
        )

    @classmethod
    def concat(cls, parts: Sequence[QuerySet]) -> QuerySet:
        """Concatenate sets of different queries.

        Examples
        --------
        >>> a = QuerySet.from_arrays([[1.0]], qid=["a"])
        >>> b = QuerySet.from_arrays([[2.0]], qid=["b"])
        >>> QuerySet.concat([a, b])
        QuerySet(2 queries, 2 rows, 1 features, not judged)
        """
        if not parts:
            raise DataError("no sets to concatenate: pass at least one")
        first, *rest = parts
        for part in rest:
            if part.feature_names != first.feature_names:
                raise DataError(f"features differ: {first.feature_names} and {part.feature_names}")
            if (part.qid.dtype.kind == "U") != (first.qid.dtype.kind == "U"):
                raise DataError("query ids are text in one set and numbers in another: convert one of them")
        qid = np.concatenate([part.qid for part in parts])
        if len(np.unique(qid)) != len(qid):
            ids, counts = np.unique(qid, return_counts=True)
            raise DataError(f"query {ids[counts > 1][0].item()!r} is in more than one set: rename it or drop one")
        judged = all(part.y is not None for part in parts)
        named = all(part.doc_id is not None for part in parts)
        weighted = any(part.sample_weight is not None for part in parts)
        columns = set(first.query_columns).intersection(*(part.query_columns for part in rest))
        return cls(
            X=np.concatenate([part.X for part in parts]),
            y=np.concatenate([part.y for part in parts if part.y is not None]) if judged else None,
            offsets=offsets_of(np.concatenate([part.sizes for part in parts])),
            qid=qid,
            doc_id=np.concatenate([part.doc_id for part in parts if part.doc_id is not None]) if named else None,
            feature_names=first.feature_names,
            query_columns={c: np.concatenate([part.query_columns[c] for part in parts]) for c in sorted(columns)},
            sample_weight=np.concatenate([part.row_weights for part in parts]) if weighted else None,
        )

    def __len__(self) -> int:
        return len(self.qid)

    def __iter__(self) -> Iterator[QuerySet]:
        return (self[i : i + 1] for i in range(len(self)))

    def __getitem__(self, queries: int | slice | ArrayLike) -> QuerySet:
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
        index = np.asarray(queries)
        if index.dtype == np.bool_:
            if index.shape != (len(self),):
                raise DataError(f"a mask must have one value per query ({len(self)}), got shape {index.shape}")
            index = np.flatnonzero(index)
        elif index.size and not np.issubdtype(index.dtype, np.integer):
            raise DataError(f"select queries by position, slice or mask, got {index.dtype}")
        index = index.astype(np.int64)
        return self._select(self.rows_of(index), index, offsets_of(sizes_of(self.offsets, index)))

    def _select(
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
            sample_weight=None if self.sample_weight is None else self.sample_weight[rows],
        )

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

    def replace(self, **changes: Any) -> QuerySet:
        """Return a copy with some attributes replaced."""
        return replace(self, **changes)

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

    def only_judged(self) -> QuerySet:
        """Return the judged rows, of the queries that have any.

        Examples
        --------
        >>> queries = QuerySet.from_arrays([[1.0], [2.0], [3.0]], y=[1, np.nan, np.nan], qid=["a", "a", "b"])
        >>> queries, queries.grades.tolist()
        (QuerySet(2 queries, 3 rows, 1 features, 1 row judged), [1.0, 0.0, 0.0])
        >>> queries.only_judged()
        QuerySet(1 queries, 1 rows, 1 features, judged)
        """
        return self._only(self.judged)

    def _only(self, kept: NDArray[np.bool_]) -> QuerySet:
        sizes = np.bincount(self.query_of_row[kept], minlength=len(self))
        return self._select(np.flatnonzero(kept), np.flatnonzero(sizes), offsets_of(sizes[sizes > 0]))

    def only_weighted(self) -> QuerySet:
        """Return the rows with a weight above 0, of the queries that have any.

        Examples
        --------
        >>> queries = QuerySet.from_arrays([[1.0], [2.0]], y=[1, 0], qid=["a", "a"], sample_weight=[0.5, 0.0])
        >>> queries.only_weighted()
        QuerySet(1 queries, 1 rows, 1 features, judged)
        """
        return self if self.sample_weight is None else self._only(self.sample_weight > 0)

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
