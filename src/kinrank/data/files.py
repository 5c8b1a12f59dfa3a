"""Files: local and remote, compressed or not, and folders of jobs that can be resumed."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import fs

from kinrank.errors import FileFormatError, JobError, ParameterError
from kinrank.registry import import_extra

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


def write_json(value: Any, path: PathLike) -> None:
    """Write a value as JSON, atomically."""
    with atomic_writer(path) as stream:
        stream.write(json.dumps(value).encode() + b"\n")


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


def claim_folder(path: PathLike, file: str, job: Mapping[str, Any], what: str) -> None:
    """Create the folder of a job, or check that an existing one belongs to the same job.

    `job` has everything that the results depend on; it is recorded in a JSON file of this name. `what` it is, such
    as "job", is for errors. Raise `JobError` if the folder belongs to another job, or is not empty and
    belongs to none.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> claim_folder(folder, "job.json", {"data": "a1", "seed": 0}, "job")
    >>> claim_folder(folder, "job.json", {"data": "a1", "seed": 1}, "job")
    Traceback (most recent call last):
    ...
    kinrank.errors.JobError: ... belongs to another job (different seed): ...
    """
    filesystem, root = filesystem_of(path)
    filesystem.create_dir(root, recursive=True)
    names = {info.base_name for info in filesystem.get_file_info(fs.FileSelector(root))}
    if file in names:
        with filesystem.open_input_file(f"{root}/{file}") as stream:
            _check_same_job(path, job, json.loads(stream.read()), what)
    elif all(name.startswith(".") for name in names):  # unfinished writes, or files of the system
        write_atomically(filesystem, f"{root}/{file}", json.dumps(job, indent=2).encode() + b"\n")
    else:
        raise JobError(f"{os.fspath(path)} is not empty and has no {file} of a {what}: choose another folder")


def changed_keys(job: Mapping[str, Any], stored: Mapping[str, Any]) -> list[str]:
    """Return the names of the entries in which a job differs from a stored one.

    Examples
    --------
    >>> changed_keys({"data": "a1", "seed": 1}, {"data": "a1", "seed": 0})
    ['seed']
    """
    expected = json.loads(json.dumps(job))  # tuples become lists, as in the file
    return [name for name in {**expected, **stored} if name not in expected or expected[name] != stored.get(name)]


def write_atomically(filesystem: fs.FileSystem, path: str, content: bytes | memoryview) -> None:
    """Write a file so that readers, and other writers of the same content, see all of it or nothing."""
    folder, _, name = path.rpartition("/")
    partial = f"{folder}/.{name}.{os.uname().nodename}.{os.getpid()}"
    with filesystem.open_output_stream(partial) as stream:
        stream.write(content)
    filesystem.move(partial, path)


def _check_same_job(path: PathLike, job: Mapping[str, Any], stored: Mapping[str, Any], what: str) -> None:
    changed = changed_keys(job, stored)
    if changed:
        raise JobError(
            f"{os.fspath(path)} belongs to another {what} (different {', '.join(changed)}): repeat that {what} with "
            "its own settings, delete the folder to start over, or choose another folder"
        )
