"""Text files, compressed if the name ends in ``.gz`` or ``.xz``."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from kinrank.errors import FileFormatError

PathLike = str | os.PathLike[str]


def open_bytes(path: PathLike, mode: Literal["rb", "wb"]) -> IO[bytes]:
    """Open for reading or writing, with gzip or xz by suffix."""
    name = os.fspath(path)
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}  # their types are no IO, though they behave alike
    stream: IO[bytes] = openers.get(os.path.splitext(name)[1], open)(name, mode)
    return stream


@contextmanager
def atomic_writer(path: PathLike) -> Iterator[IO[bytes]]:
    """Open for writing; a failure keeps the old file. Devices and pipes are written directly."""
    target = Path(path)
    if not target.parent.is_dir() or (target.exists() and not target.is_file()):
        with open_bytes(path, "wb") as stream:
            yield stream
        return
    staging = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        with open_bytes(staging, "wb") as stream:
            yield stream
        staging.replace(target)
    finally:
        staging.unlink(missing_ok=True)


def write_json(value: Any, path: PathLike, *, indent: int | None = None) -> None:
    """Write a value as JSON, atomically."""
    with atomic_writer(path) as stream:
        stream.write(json.dumps(value, indent=indent).encode() + b"\n")


def read_bytes(path: PathLike) -> bytes:
    """Return the content of a file, decompressed."""
    try:
        with open_bytes(path, "rb") as stream:
            return stream.read()
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise FileFormatError(
            path, 0, f"cannot be decompressed ({error}): it is truncated or has the wrong suffix; download it again"
        ) from error


def parse_ids(texts: NDArray[np.str_]) -> NDArray[Any]:
    """Return ids as whole numbers if all are written as such, else as text.

    Examples
    --------
    >>> parse_ids(np.array(["10", "18"])).tolist(), parse_ids(np.array(["10", "018"])).tolist()
    ([10, 18], ['10', '018'])
    """
    try:
        numbers = texts.astype(np.int64)
    except (ValueError, OverflowError):
        return texts
    return numbers if np.array_equal(numbers.astype(np.str_), texts) else texts
