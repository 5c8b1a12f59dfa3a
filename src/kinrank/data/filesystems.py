"""File systems, local and remote, through Arrow or fsspec."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from kinrank.data.textfile import PathLike
from kinrank.errors import ParameterError
from kinrank.registry import import_extra

_ARROW = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


def filesystem_of(path: PathLike) -> tuple[fs.FileSystem, str]:
    """Return the file system of a path or URI, and the path on it.

    Arrow opens ``file://``, ``s3://``, ``gs://``, ``abfs://`` and ``hdfs://``; fsspec opens any other scheme.

    Examples
    --------
    >>> filesystem_of("file:///data/judged")[1]
    '/data/judged'
    """
    name = os.fspath(path)
    if "://" not in name:
        return fs.LocalFileSystem(), str(Path(name).absolute())
    try:
        opened: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(name)
    except pa.ArrowInvalid as error:
        if name.partition("://")[0] in _ARROW:
            raise ParameterError(f"{name.partition('?')[0]} cannot be opened: {error}") from error
        other, root = import_extra("fsspec.core", "ray").url_to_fs(name)
        return fs.PyFileSystem(fs.FSSpecHandler(other)), root
    return opened
