"""QuerySet: candidates grouped by query, the data type that all of kinrank works with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank import folder
from kinrank.arrays import Float32, State
from kinrank.data.files import PathLike
from kinrank.data.query_rows import (
    COLUMN,
    DOCUMENT_COLUMN,
    ROW_ARRAYS,
    Groups,
    QueryRows,
    as_column,
    as_grades,
    as_ids,
    as_weights,
    check_lengths,
    group_rows,
    offsets_of,
    take_arrays,
)
from kinrank.errors import DataError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


# --- the folder format of a QuerySet: written block by block, opened memory-mapped, for data larger than memory -------
#
# `QuerySet.open` and `QuerySet.save` are built on it.


KIND = "queries"
_ROWS_PER_COPY = 1 << 20


def read_folder(path: PathLike, *, verify: bool) -> tuple[tuple[str, ...], State]:
    """Return the feature names and the memory-mapped arrays of a folder; see `QuerySet.open`."""
    meta, arrays = folder.read(path, KIND, verify=verify)
    return tuple(meta["feature_names"]), arrays


def write_folder(blocks: Iterable[QueryRows], path: PathLike) -> None:
    """Write QuerySets to one folder, which `QuerySet.open` memory-maps.

    Only one block is held in memory at a time. The folder is created when all of it is written, or not at all.

    Parameters
    ----------
    blocks
        QuerySets with the same features and columns and different queries, as `iter_parquet` yields them.
    path
        The folder. An existing folder of queries is replaced; anything else raises.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from kinrank import QuerySet
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged"
    >>> write_folder((QuerySet.from_arrays([[float(i)]], y=[0], qid=[i]) for i in range(3)), path)
    >>> QuerySet.open(path)
    QuerySet(3 queries, 3 rows, 1 features, judged)
    """
    with folder.atomic_folder(path, KIND) as staging:
        features: tuple[str, ...] | None = None
        with ExitStack() as stack:
            files: dict[str, GrowingArray] = {}
            for block in blocks:
                arrays = block.get_state()
                if features is None:
                    features = block.feature_names
                    files = {name: stack.enter_context(GrowingArray(staging, name)) for name in arrays}
                    files["offsets"].append(np.zeros(1, dtype=np.int64))
                _check_same_columns(block.feature_names, features, arrays, files)
                first_row = files["X"].length
                for name, values in arrays.items():
                    files[name].append(values[1:] + first_row if name == "offsets" else values)
        if features is None:
            raise DataError("no blocks to write: pass at least one QuerySet")
        _check_unique(staging / folder.file_name("qid"))
        folder.write_manifest(staging, KIND, {"feature_names": list(features)}, list(files))


def _check_same_columns(
    names: tuple[str, ...], features: tuple[str, ...], arrays: Iterable[str], files: Iterable[str]
) -> None:
    if names != features:
        raise DataError(f"features differ between blocks: {features} and {names}")
    odd = set(arrays).symmetric_difference(files)
    if odd:
        raise DataError(f"{sorted(odd)[0]!r} is in some blocks but not in others: add it to all of them or to none")


def _check_unique(file: Path) -> None:
    ids = np.sort(np.load(file, allow_pickle=False))
    repeated = ids[1:] == ids[:-1]
    if repeated.any():
        query = ids[1:][repeated][0].item()
        raise DataError(f"query {query!r} is in more than one block: keep the rows of a query together")


class GrowingArray:
    """A ``.npy`` file that grows along its first axis.

    NumPy pads the header so that any length fits: it is written first, and again at the end. An array that needs a
    wider type later (longer ids) is copied once to a wider file.
    """

    def __init__(self, staging: Path, name: str) -> None:
        self.name = name
        self.file = staging / folder.file_name(name)
        self.length = 0
        self.dtype: np.dtype[Any] | None = None
        self.row_shape: tuple[int, ...] = ()

    def __enter__(self) -> GrowingArray:
        self._stream = self.file.open("wb+")
        return self

    def __exit__(self, *_: object) -> None:
        self._write_header()
        self._stream.close()

    def append(self, values: NDArray[Any]) -> None:
        """Write values after the last ones."""
        if self.dtype is None:
            self.dtype, self.row_shape = values.dtype, values.shape[1:]
            self._write_header()
        if (self.dtype.kind == "U") != (values.dtype.kind == "U"):
            raise DataError(f"{self.name!r} is text in one block and numbers in another: convert one of them")
        dtype = np.result_type(self.dtype, values.dtype)
        if dtype != self.dtype:
            self._widen(dtype)
        np.ascontiguousarray(values, dtype=dtype).tofile(self._stream)
        self.length += len(values)

    def _write_header(self) -> None:
        if self.dtype is None:
            return
        self._stream.seek(0)
        header = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length, *self.row_shape)}
        np.lib.format.write_array_header_1_0(self._stream, header)

    def _widen(self, dtype: np.dtype[Any]) -> None:
        self._write_header()
        self._stream.close()
        narrow = self.file.rename(self.file.with_suffix(".narrow"))
        old = np.load(narrow, mmap_mode="r" if self.length else None, allow_pickle=False)
        self.dtype = dtype
        self._stream = self.file.open("wb+")
        self._write_header()
        for start in range(0, self.length, _ROWS_PER_COPY):
            old[start : start + _ROWS_PER_COPY].astype(dtype).tofile(self._stream)
        narrow.unlink()


@dataclass(frozen=True, eq=False, repr=False)
class QuerySet(QueryRows):
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
    doc_title : array of str of shape (rows,), or None
        The title of each document, by which explanations name it.
    doc_columns : mapping of str to array of shape (rows,)
        Other values of each document, such as its site or brand, which memory can use as keys.
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
        doc_title: ArrayLike | None = None,
        doc_columns: Mapping[str, ArrayLike] | None = None,
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
        doc_title
            The title of each row's document, by which explanations name it.
        doc_columns
            Other values of documents by column name, one per row, such as their site or brand.
        """
        features = np.asarray(X, dtype=np.float32)
        if features.ndim != 2:
            raise DataError(f"X must have two dimensions, rows and features, got shape {features.shape}")
        groups = group_rows(len(features), qid, group)
        names = () if feature_names is None else feature_names
        columns = {name: as_column(values) for name, values in (query_columns or {}).items()}
        return cls._from_groups(groups, features, y, doc_id, names, columns, sample_weight, doc_title, doc_columns)

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
        doc_title: ArrayLike | None,
        doc_columns: Mapping[str, ArrayLike] | None = None,
    ) -> QuerySet:
        """Sort rows into their groups."""
        arrays: dict[str, Any] = {
            "y": None if y is None else as_grades(y),
            "doc_id": None if doc_id is None else as_ids(doc_id, "doc_id"),
            "doc_title": None if doc_title is None else as_column(doc_title).astype(np.str_),
            "sample_weight": None if sample_weight is None else as_weights(sample_weight),
        }
        documents = {name: as_column(values) for name, values in (doc_columns or {}).items()}
        check_lengths(len(X), {**arrays, **documents})
        order = groups.row_order
        if order is not None:
            X, arrays, documents = X[order], take_arrays(arrays, order), take_arrays(documents, order)
        return cls(
            X,
            offsets=groups.offsets,
            qid=groups.qid,
            feature_names=tuple(feature_names),
            query_columns=query_columns,
            row_order=order,
            doc_columns=documents,
            **arrays,
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
        title: str = "doc_title",
        features: Sequence[str] | None = None,
        query: Sequence[str] = (),
        keys: Sequence[str] = (),
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
        title
            The column of document titles, by which explanations name documents. Optional.
        features
            The features, by name or by a pattern such as ``bm25_*``; by default all other numeric columns.
        query
            Columns of numbers that belong to the query, such as a group for splits, and are no features. Those that the
            table lacks are ignored.
        keys
            Columns of numbers or text that belong to the document, such as its site or brand, and are no features.
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

        names: tables.ColumnNames = {"qid": qid, "y": y, "doc_id": doc_id, "text": text, "title": title}
        names |= {"features": features, "query": query, "keys": keys, "drop": drop}
        return cls._from_groups(**tables.read_table(table, **names))

    def to_table(self) -> pa.Table:
        """Return an Arrow table that `from_table` reads back.

        Its columns are qid, y, doc_id, doc_title, sample_weight, ``document.NAME``, the features and ``query.NAME``.

        The vector of a query is in its first row and null in the others: repeated, it would be most of the table.

        Examples
        --------
        >>> queries = QuerySet.from_arrays([[7.5], [3.0]], y=[1, 0], qid=[1, 1], query_columns={"intent": ["title"]})
        >>> queries.to_table().column_names
        ['qid', 'y', 'f1', 'query.intent']
        """
        from kinrank.data import tables  # imports Arrow, which QuerySet itself does not need

        return tables.write_table(self)

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
        feature_names, state = read_folder(path, verify=verify)
        return cls.from_state(state, feature_names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to a folder that `open` memory-maps; see `kinrank.data.queryset.write_folder`."""
        write_folder([self], path)

    @classmethod
    def from_state(cls, state: State, feature_names: Sequence[str]) -> QuerySet:
        """Build from the arrays of `get_state`."""
        columns, documents = (
            {name.removeprefix(prefix): values for name, values in state.items() if name.startswith(prefix)}
            for prefix in (COLUMN, DOCUMENT_COLUMN)
        )
        arrays: dict[str, Any] = {name: state.get(name) for name in ("X", "offsets", "qid", *ROW_ARRAYS)}
        return cls(feature_names=tuple(feature_names), query_columns=columns, doc_columns=documents, **arrays)

    @classmethod
    def concat(cls, parts: Sequence[QuerySet]) -> QuerySet:
        """Concatenate sets of different queries.

        In a set without grades no row is judged, and in one without weights every row has weight 1. Document ids and
        query columns cannot be made up: if only some of the sets have them, that is an error.

        Examples
        --------
        >>> a = QuerySet.from_arrays([[1.0]], qid=["a"])
        >>> b = QuerySet.from_arrays([[2.0]], qid=["b"])
        >>> QuerySet.concat([a, b])
        QuerySet(2 queries, 2 rows, 1 features, not judged)
        """
        if not parts:
            raise DataError("no sets to concatenate: pass at least one")
        names = parts[0].feature_names
        for part in parts[1:]:
            if part.feature_names != names:
                raise DataError(f"features differ: {names} and {part.feature_names}")
        return cls.from_state(concat_states([part.get_state() for part in parts]), names)


_OF_DOCUMENTS = {"doc_id": "ids", "doc_title": "titles"}
_FILL = {"y": np.nan, "sample_weight": 1.0}  # not judged, and of the usual weight


def concat_states(states: Sequence[State]) -> State:
    """Concatenate the arrays of `QuerySet.get_state`; see `QuerySet.concat`.

    Examples
    --------
    >>> one = {"X": np.zeros((1, 1)), "offsets": np.array([0, 1]), "qid": np.array(["a"]), "y": np.ones(1, np.float32)}
    >>> other = {"X": np.zeros((2, 1)), "offsets": np.array([0, 2]), "qid": np.array(["b"])}
    >>> both = concat_states([one, other])
    >>> both["offsets"].tolist(), both["y"].tolist()
    ([0, 1, 3], [1.0, nan, nan])
    """
    names = dict.fromkeys(name for state in states for name in state)
    joined = {name: np.concatenate([_array(name, states, i) for i in range(len(states))]) for name in names}
    joined["offsets"] = offsets_of(np.concatenate([np.diff(state["offsets"]) for state in states]))
    _check_ids([state["qid"] for state in states], joined["qid"])
    return joined


def _array(name: str, states: Sequence[State], number: int) -> NDArray[Any]:
    """Return an array of one of the sets, filled if it has none."""
    state = states[number]
    if name in state:
        return state[name]
    if name in _FILL:
        return np.full(len(state["X"]), _FILL[name], dtype=np.float32)
    kind, argument = ("document", "doc_columns=") if name.startswith(DOCUMENT_COLUMN) else ("query", "query_columns=")
    column = name.partition(".")[2]
    what, change = (f"{kind} column {column!r} is", f"{argument}, without it")
    if name in _OF_DOCUMENTS:
        what, change = f"document {_OF_DOCUMENTS[name]} are", f"{name}=None"
    raise DataError(
        f"{what} missing in set {number + 1} of {len(states)}: add what is missing, or drop it from the others with "
        f"queries.replace({change})"
    )


def _check_ids(parts: Sequence[NDArray[Any]], qid: NDArray[Any]) -> None:
    if len({part.dtype.kind == "U" for part in parts}) > 1:
        raise DataError("query ids are text in one set and numbers in another: convert one of them")
    ids, counts = np.unique(qid, return_counts=True)
    if len(ids) != len(qid):
        raise DataError(f"query {ids[counts > 1][0].item()!r} is in more than one set: rename it or drop one")
