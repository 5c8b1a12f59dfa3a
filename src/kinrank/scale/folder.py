"""A job's own folder: what is done is written there whole or not at all, so that a job can go on where it was."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
from typing import Any

import numpy as np
from pyarrow import fs

from kinrank.arrays import State
from kinrank.data.filesystems import filesystem_of
from kinrank.data.textfile import PathLike
from kinrank.errors import DamagedFolderError, JobError

_JOB = "job.json"


class JobFolder:
    """Results by name, on any file system that Arrow or fsspec reaches and all workers see.

    Parameters
    ----------
    path
        The folder; made where it is not there.
    key
        What the job is: a folder of another job is refused.
    """

    def __init__(self, path: PathLike, key: str) -> None:
        self.path = os.fspath(path)
        self.filesystem, self.root = filesystem_of(path)
        self.filesystem.create_dir(self.root, recursive=True)
        mine = {"kind": "kinrank job", "key": hashlib.sha256(key.encode()).hexdigest()}
        found = self.filesystem.get_file_info(fs.FileSelector(self.root))
        if not any(info.base_name == _JOB for info in found):
            if not all(info.base_name.startswith(".") for info in found):  # what was being written, or a system's own
                raise JobError(f"{self.path}: neither empty nor the folder of a job; give another folder")
            self._write(_JOB, json.dumps(mine).encode())
        elif json.loads(self._read(_JOB)) != mine:
            raise JobError(
                f"{self.path}: the folder of another job (other data, settings or kinrank): remove it to start anew, "
                "or give another folder"
            )

    def names(self) -> set[str]:
        """What is done."""
        found = self.filesystem.get_file_info(fs.FileSelector(self.root))
        return {info.base_name.removesuffix(".npz") for info in found if info.base_name.endswith(".npz")}

    def write(self, name: str, state: State) -> None:
        """Keep a result. Whoever writes it again writes the same."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = dict(state)
        np.savez(buffer, **arrays)
        self._write(f"{name}.npz", buffer.getbuffer())

    def read(self, name: str) -> State:
        """A result; the file has checksums of its own, so damage is found."""
        try:
            with np.load(io.BytesIO(self._read(f"{name}.npz")), allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        except (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError) as error:
            raise DamagedFolderError(
                f"{self.path}: {name}.npz is damaged or gone ({error}); remove it and start the job again"
            ) from error

    def delete(self, names: set[str] | None = None) -> None:
        """Remove some results, or the folder."""
        if names is None:
            self.filesystem.delete_dir(self.root)
        else:
            for name in names:
                self.filesystem.delete_file(f"{self.root}/{name}.npz")

    def _read(self, file: str) -> bytes:
        with self.filesystem.open_input_file(f"{self.root}/{file}") as stream:
            content: bytes = stream.read()
        return content

    def _write(self, file: str, content: bytes | memoryview) -> None:
        """Under another name first: a reader sees all of it or nothing, also where two workers write the same."""
        partial = f"{self.root}/.{file}.{os.uname().nodename}.{os.getpid()}"
        with self.filesystem.open_output_stream(partial) as stream:
            stream.write(content)
        self.filesystem.move(partial, f"{self.root}/{file}")
