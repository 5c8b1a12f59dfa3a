"""Where files lie: on this machine, or wherever Arrow or fsspec can reach."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from kinrank.data.textfile import PathLike
from kinrank.registry import import_extra


def filesystem_of(path: PathLike) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the path on it.

    Arrow itself knows ``file://``, ``s3://``, ``gs://``, ``abfs://`` and ``hdfs://``; any other scheme is asked of
    fsspec.

    Examples
    --------
    >>> filesystem_of("file:///data/judged")[1]
    '/data/judged'
    """
    name = os.fspath(path)
    if "://" not in name:
        return fs.LocalFileSystem(), str(Path(name).absolute())
    try:
        found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(name)
    except pa.ArrowInvalid:  # a scheme that Arrow does not know
        other, place = import_extra("fsspec.core", "ray").url_to_fs(name)
        return fs.PyFileSystem(fs.FSSpecHandler(other)), place
    return found
