"""Which job a folder belongs to, so that an interrupted job can be resumed and no other job reads its parts."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from pyarrow import fs

from kinrank.data.filesystems import filesystem_of
from kinrank.data.textfile import PathLike
from kinrank.errors import JobError


def claim_folder(path: PathLike, file: str, job: Mapping[str, Any], what: str) -> None:
    """Create the folder of a job, or check that an existing one belongs to the same job.

    Parameters
    ----------
    path
        The folder, on any file system that Arrow or fsspec can open.
    file
        The name of the JSON file in it that records the job.
    job
        Everything that the results depend on, as JSON values by name.
    what
        What the job is, for error messages: "tuning study".

    Raises
    ------
    JobError
        If the folder belongs to another job, or is not empty and belongs to none.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> claim_folder(folder, "study.json", {"data": "a1", "seed": 0}, "tuning study")
    >>> claim_folder(folder, "study.json", {"data": "a1", "seed": 1}, "tuning study")
    Traceback (most recent call last):
    ...
    kinrank.errors.JobError: ... belongs to another tuning study (different seed): ...
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
