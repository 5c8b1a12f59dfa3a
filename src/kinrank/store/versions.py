"""Numbered versions of a model in a folder or an object store, and which of them are in use.

::

    current                               the name of the version in use; written last
    versions/000012-b03d51b9b4c7/         a model folder; the manifest, with the SHA-256 of all files, is written last
    versions/000013-09c1f5ad2e77/

The name of a version is its number and the fingerprint of its manifest, which is also the ``version`` in the responses
of a service. Two programs that publish at the same time may take the same number, but never the same folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pyarrow import fs

from kinrank import folder
from kinrank.data.files import filesystem_of, redact_passwords, write_atomically
from kinrank.errors import DamagedFolderError, IncompleteVersionError, ParameterError, StoreError
from kinrank.store.model import KIND, read_model

_CURRENT = "current"
_VERSIONS = "versions"
_NAME = re.compile(r"(?P<number>\d{6,})-(?P<fitted>[0-9a-f]{12})\Z")
_CHUNK = 8 << 20


def fingerprint(path: str | os.PathLike[str]) -> str:
    """Return the first digits of the SHA-256 of a model folder's manifest; identical folders have identical ones."""
    return hashlib.sha256((Path(path) / folder.MANIFEST).read_bytes()).hexdigest()[:12]


@dataclass(frozen=True)
class ModelVersion:
    """A version in a store."""

    name: str
    """The name of its folder."""
    size: int
    """Its size in bytes."""
    written: datetime | None
    """When its manifest was written; None if there is none, because it was not uploaded completely."""

    @property
    def number(self) -> int:
        """Its number."""
        return int(self.name.partition("-")[0])

    @property
    def fitted(self) -> str:
        """The fingerprint of its manifest, as in the responses of a service."""
        return self.name.partition("-")[2]


class VersionStore:
    """Numbered versions of a model.

    The address is a folder, or one such as ``s3://bucket/models``; see `kinrank.data.files.filesystem_of`.

    Examples
    --------
    >>> import tempfile
    >>> from kinrank import SingleRanker
    >>> from kinrank.datasets import make_two_camps
    >>> with tempfile.TemporaryDirectory() as place:
    ...     SingleRanker("rankrls").fit(make_two_camps(40)).save(f"{place}/model")
    ...     store = VersionStore(f"{place}/models")
    ...     version = store.publish(f"{place}/model")
    ...     store.use(version)
    ...     [each.number for each in store.versions()], store.current() == version.name
    ([1], True)
    """

    def __init__(self, address: str | os.PathLike[str]) -> None:
        self._address = os.fspath(address)

    def __str__(self) -> str:
        return redact_passwords(self._address).replace("//...@", "//")

    @staticmethod
    def is_at(address: str | os.PathLike[str]) -> bool:
        """Return whether an address is that of a store: any on another machine, and a folder that holds one."""
        name = os.fspath(address)
        return "://" in name or (Path(name) / _VERSIONS).is_dir()

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        return filesystem_of(self._address)  # may ask the network for the region of a bucket

    @property
    def _files(self) -> fs.FileSystem:
        return self._opened[0]

    def _path(self, *parts: str) -> str:
        return "/".join([self._opened[1].rstrip("/"), *parts])

    # --- versions ---------------------------------------------------------------------------------------------------

    def versions(self) -> list[ModelVersion]:
        """Return the versions by number, with those that were not uploaded completely."""
        selector = fs.FileSelector(self._path(_VERSIONS), recursive=True, allow_not_found=True)
        found: dict[str, list[fs.FileInfo]] = {}
        for info in self._files.get_file_info(selector):
            name = info.path.split("/")[-2]
            if info.type == fs.FileType.File and _NAME.match(name):
                found.setdefault(name, []).append(info)
        return [_to_version(name, infos) for name, infos in sorted(found.items())]

    def find(self, wanted: str) -> ModelVersion:
        """Return the version with a number, a fingerprint or a name. Raise `ParameterError` if there is not one."""
        versions = self.versions()
        matching = [each for each in versions if wanted in (str(each.number), each.fitted, each.name)]
        matching = [each for each in matching if each.written is not None] or matching
        if len(matching) > 1:
            names = ", ".join(each.name for each in matching)
            raise ParameterError(f"{self} has several versions {wanted}: name one of {names}")
        if not matching:
            known = ", ".join(str(each.number) for each in versions) or "none"
            raise ParameterError(f"{self} has no version {wanted[:100]!r}: it has {known}")
        if matching[0].written is None:
            raise IncompleteVersionError(f"version {wanted} was not uploaded completely: publish the model again")
        return matching[0]

    def publish(self, path: str | os.PathLike[str]) -> ModelVersion:
        """Upload a model folder as the next version, and verify it first. It is not in use yet; see `use`.

        A model that is there completely is not uploaded again.
        """
        manifest = folder.read_manifest(Path(path), KIND)
        outside = _evidence_outside(read_model(path).params)
        if outside is not None:
            raise StoreError(
                f"{os.fspath(path)} has its evidence in another folder, {outside}, which other machines lack: publish "
                "it with kinrank admin models ADDRESS --publish MODEL, or train it with the evidence in memory"
            )
        fitted = fingerprint(path)
        size = (
            sum(entry["bytes"] for entry in manifest["arrays"].values()) + (Path(path) / folder.MANIFEST).stat().st_size
        )
        versions = self.versions()
        number = max((each.number for each in versions), default=0) + 1
        name = f"{number:06d}-{fitted}"
        for known in versions:
            if known.fitted == fitted:
                name = known.name
                if known.written is not None and known.size == size:
                    return known
        self._files.create_dir(self._path(_VERSIONS, name), recursive=True)
        arrays = Path(path) / manifest["folder"]
        for file in [*(arrays / folder.file_name(array) for array in manifest["arrays"]), Path(path) / folder.MANIFEST]:
            with (
                file.open("rb") as source,
                self._files.open_output_stream(self._path(_VERSIONS, name, file.name)) as target,
            ):
                shutil.copyfileobj(source, target, _CHUNK)
        if fingerprint(path) != fitted:
            self._files.delete_dir(self._path(_VERSIONS, name))
            raise StoreError(f"{os.fspath(path)} was replaced while it was uploaded: publish it again")
        return self.find(name)

    def pull(self, name: str, cache: str | os.PathLike[str]) -> Path:
        """Return a verified copy of a version in a folder of this machine, downloaded unless it is there.

        Raise `IncompleteVersionError` if files are missing or too short, and `DamagedFolderError` if one
        differs from its checksum.
        """
        _check_name(name)
        copy = Path(cache) / name
        if copy.exists():
            try:
                read_model(copy)
                copy.touch()
                return copy
            except StoreError:
                shutil.rmtree(copy, ignore_errors=True)
        sizes = {info.base_name: info.size for info in self._list_version(name)}
        if folder.MANIFEST not in sizes:
            raise IncompleteVersionError(f"{self}: version {name} has no {folder.MANIFEST}: publish it again")
        try:
            with folder.atomic_folder(copy, KIND) as staging:
                self._download(name, sizes, staging)
        except OSError:
            if not copy.exists():  # otherwise another process has written it meanwhile
                raise
        return copy

    def _download(self, name: str, sizes: Mapping[str, int], staging: Path) -> None:
        self._copy(name, folder.MANIFEST, staging)
        manifest = folder.read_manifest(staging, KIND)
        if fingerprint(staging) != name.partition("-")[2]:
            raise DamagedFolderError(
                f"{self}: the manifest of version {name} is not its own: delete its folder and publish the model again"
            )
        for array, entry in manifest["arrays"].items():
            file = folder.file_name(array)
            if sizes.get(file) != entry["bytes"]:
                raise IncompleteVersionError(
                    f"{self}: {file} of version {name} has {sizes.get(file, 'no')} bytes, expected "
                    f"{entry['bytes']}: publish it again"
                )
        for array in manifest["arrays"]:
            self._copy(name, folder.file_name(array), staging)
        folder.read_arrays(staging, manifest)

    def _copy(self, name: str, file: str, staging: Path) -> None:
        with (
            self._files.open_input_stream(self._path(_VERSIONS, name, file)) as source,
            open(staging / file, "wb") as target,
        ):
            shutil.copyfileobj(source, target, _CHUNK)

    def _list_version(self, name: str) -> list[fs.FileInfo]:
        selector = fs.FileSelector(self._path(_VERSIONS, name), allow_not_found=True)
        return [info for info in self._files.get_file_info(selector) if info.type == fs.FileType.File]

    # --- the version in use -----------------------------------------------------------------------------------------

    def current(self) -> str | None:
        """Return the name of the version in use; None if nothing was published."""
        try:
            with self._files.open_input_stream(self._path(_CURRENT)) as stream:
                name: str = stream.read().decode(errors="replace").strip()
        except FileNotFoundError:
            return None
        _check_name(name)
        return name

    def use(self, version: ModelVersion) -> None:
        """Put a version into use; services change over at once, and never see half of a change."""
        write_atomically(self._files, self._path(_CURRENT), version.name.encode() + b"\n")


def _evidence_outside(params: Any) -> str | None:
    """Return the folder of evidence that the settings of a model, or of one that it wraps, name; None without one."""
    if not isinstance(params, Mapping):
        return None
    own = params.get("evidence")
    return own if isinstance(own, str) else next(filter(None, map(_evidence_outside, params.values())), None)


def _to_version(name: str, infos: list[fs.FileInfo]) -> ModelVersion:
    written = [info.mtime for info in infos if info.base_name == folder.MANIFEST]
    return ModelVersion(name, sum(info.size for info in infos), written[0] if written else None)


def _check_name(name: str) -> None:
    """Raise unless the name of a version is one: it becomes a path."""
    if not _NAME.match(name):
        raise DamagedFolderError(
            f"{name[:100]!r} is not the name of a version: choose one with kinrank admin models --use"
        )
