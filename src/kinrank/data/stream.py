"""Judged queries larger than memory: written to the folder form block by block, opened memory-mapped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank import folder
from kinrank.data.queryset import COLUMN, KIND, QuerySet
from kinrank.data.textfile import PathLike
from kinrank.errors import DataError

_ROWS_PER_COPY = 1 << 20


def write_folder(blocks: Iterable[QuerySet], path: PathLike) -> None:
    """Write blocks of queries as one folder that `QuerySet.open` maps into memory.

    Only one block is held at a time. The folder appears when all of it is written, or not at all.

    Parameters
    ----------
    blocks
        Sets with the same features and columns, no query in two of them; `iter_parquet` makes such blocks.
    path
        The folder; one that holds queries is replaced, anything else is refused.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judged"
    >>> write_folder((QuerySet.from_arrays([[float(i)]], y=[0], qid=[i]) for i in range(3)), path)
    >>> QuerySet.open(path)
    QuerySet(3 queries, 3 rows, 1 features, judged)
    """
    with folder.replacing(path, KIND) as staging:
        features: tuple[str, ...] | None = None
        with ExitStack() as stack:
            files: dict[str, _GrowingArray] = {}
            for block in blocks:
                arrays = dict(_arrays(block))
                if features is None:
                    features = block.feature_names
                    files = {name: stack.enter_context(_GrowingArray(staging, name)) for name in arrays}
                    files["offsets"].append(np.zeros(1, dtype=np.int64))
                _check_alike(block, features, arrays, files)
                first_row = files["X"].length
                for name, values in arrays.items():
                    files[name].append(values + first_row if name == "offsets" else values)
        if features is None:
            raise DataError("no blocks to write: the stream of queries is empty")
        _refuse_repeated(staging / folder.file_name("qid"))
        folder.seal(staging, KIND, {"feature_names": list(features)}, list(files))


def _arrays(block: QuerySet) -> Iterator[tuple[str, NDArray[Any]]]:
    """What a block adds to each file of the folder; offsets without the leading 0."""
    yield "X", block.X
    yield "offsets", block.offsets[1:]
    yield "qid", block.qid
    if block.y is not None:
        yield "y", block.y
    if block.doc_id is not None:
        yield "doc_id", block.doc_id
    for name, values in block.query_columns.items():
        yield COLUMN + name, values


def _check_alike(block: QuerySet, features: tuple[str, ...], arrays: Iterable[str], files: Iterable[str]) -> None:
    if block.feature_names != features:
        raise DataError(f"features differ between blocks: {features} and {block.feature_names}")
    odd = set(arrays).symmetric_difference(files)
    if odd:
        raise DataError(f"{sorted(odd)[0]!r} is in some blocks and not in others: give it to all of them or to none")


def _refuse_repeated(file: Path) -> None:
    ids = np.sort(np.load(file, allow_pickle=False))
    repeated = ids[1:] == ids[:-1]
    if repeated.any():
        query = ids[1:][repeated][0].item()
        raise DataError(f"query {query!r} is in more than one block: keep the rows of a query together")


class _GrowingArray:
    """A ``.npy`` file that grows along its first axis.

    NumPy leaves room in the header for any length, so the header is written first and again at the end. An array
    that turns out to need a wider type (longer ids) is copied once into a wider file.
    """

    def __init__(self, staging: Path, name: str) -> None:
        self.name = name
        self.file = staging / folder.file_name(name)
        self.length = 0
        self.dtype: np.dtype[Any] | None = None
        self.row_shape: tuple[int, ...] = ()

    def __enter__(self) -> _GrowingArray:
        self._stream = self.file.open("wb+")
        return self

    def __exit__(self, *_: object) -> None:
        self._write_header()
        self._stream.close()

    def append(self, values: NDArray[Any]) -> None:
        if self.dtype is None:
            self.dtype, self.row_shape = values.dtype, values.shape[1:]
            self._write_header()
        if (self.dtype.kind == "U") != (values.dtype.kind == "U"):
            raise DataError(f"{self.name!r} is text in one block and numbers in another: make them alike")
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
