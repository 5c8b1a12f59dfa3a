"""File systems, local and remote, through Arrow or fsspec."""

from __future__ import annotations

import os
import re
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
            shown = redact_passwords(name.partition("?")[0])
            raise ParameterError(f"{shown} cannot be opened: {redact_passwords(str(error))}") from None
        other, root = import_extra("fsspec.core", "ray").url_to_fs(name)
        return fs.PyFileSystem(fs.FSSpecHandler(other)), root
    return opened


def redact_passwords(text: str) -> str:
    """Return the text without the user names and passwords of its URLs.

    Examples
    --------
    >>> redact_passwords("none of https://me:secret@a:9200, https://b:9200")
    'none of https://...@a:9200, https://b:9200'
    >>> redact_passwords("postgresql://db/kinrank?user=me&password=secret&sslmode=require")
    'postgresql://db/kinrank?user=me&password=...&sslmode=require'
    """
    text = re.sub(r"//(?:\S*|[^/]*)@", "//...@", text)  # a password may contain unencoded slashes or spaces
    return re.sub(r"([?&](?:ssl)?password=)[^&\s]*", r"\1...", text)
