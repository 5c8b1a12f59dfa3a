"""Folder for the intermediate results of a job, so that an interrupted job can be resumed."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from pyarrow import fs

from kinrank.arrays import State
from kinrank.data.filesystems import filesystem_of
from kinrank.data.jobs import claim_folder, write_atomically
from kinrank.data.textfile import PathLike
from kinrank.errors import DamagedFolderError


class JobFolder:
    """Intermediate results by name, on any file system that Arrow or fsspec can open and all workers share.

    Parameters
    ----------
    path
        The folder; created if it does not exist.
    job
        Everything that the results depend on, as JSON values by name. The folder of another job raises `JobError`.
    """

    def __init__(self, path: PathLike, job: Mapping[str, Any]) -> None:
        self.path = os.fspath(path)
        self.filesystem, self.root = filesystem_of(path)
        claim_folder(path, "job.json", job, "job")

    def names(self) -> set[str]:
        """Return the names of the finished results."""
        files = self.filesystem.get_file_info(fs.FileSelector(self.root))
        return {info.base_name.removesuffix(".npz") for info in files if info.base_name.endswith(".npz")}

    def write(self, name: str, state: State) -> None:
        """Write a result atomically."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = dict(state)
        np.savez(buffer, **arrays)
        write_atomically(self.filesystem, f"{self.root}/{name}.npz", buffer.getbuffer())

    def read(self, name: str) -> State:
        """Read a result; raise `DamagedFolderError` if it is missing or fails its checksums."""
        try:
            with np.load(io.BytesIO(self._read(f"{name}.npz")), allow_pickle=False) as arrays:
                return {key: arrays[key] for key in arrays.files}
        except (zipfile.BadZipFile, ValueError, EOFError, KeyError, OSError) as error:
            raise DamagedFolderError(
                f"{self.path}: {name}.npz is damaged or missing ({error}): delete it and start the job again"
            ) from error

    def delete(self, names: set[str] | None = None) -> None:
        """Delete some results, or the whole folder."""
        if names is None:
            self.filesystem.delete_dir(self.root)
        else:
            for name in names:
                self.filesystem.delete_file(f"{self.root}/{name}.npz")

    def _read(self, file: str) -> bytes:
        with self.filesystem.open_input_file(f"{self.root}/{file}") as stream:
            content: bytes = stream.read()
        return content
