"""The folder format of a QuerySet: written block by block, opened memory-mapped, for data larger than memory.

`QuerySet.open` and `QuerySet.save` are built on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank import folder
from kinrank.arrays import State
from kinrank.data.query_rows import QueryRows
from kinrank.data.textfile import PathLike
from kinrank.errors import DataError

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
