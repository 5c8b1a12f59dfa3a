"""A job's own folder: what is done is written there whole or not at all, so that a job can go on where it was."""

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
    """Results by name, on any file system that Arrow or fsspec reaches and all workers see.

    Parameters
    ----------
    path
        The folder; made where it is not there.
    job
        Everything that the results depend on, as JSON values by name; a folder of another job raises.
    """

    def __init__(self, path: PathLike, job: Mapping[str, Any]) -> None:
        self.path = os.fspath(path)
        self.filesystem, self.root = filesystem_of(path)
        claim_folder(path, "job.json", job, "job")

    def names(self) -> set[str]:
        """What is done."""
        found = self.filesystem.get_file_info(fs.FileSelector(self.root))
        return {info.base_name.removesuffix(".npz") for info in found if info.base_name.endswith(".npz")}

    def write(self, name: str, state: State) -> None:
        """Keep a result. Whoever writes it again writes the same."""
        buffer = io.BytesIO()
        arrays: dict[str, Any] = dict(state)
        np.savez(buffer, **arrays)
        write_atomically(self.filesystem, f"{self.root}/{name}.npz", buffer.getbuffer())

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
