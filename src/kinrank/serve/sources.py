"""Where models come from: a folder that is watched, or a store of numbered versions."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from kinrank.store.versions import CANARY, CURRENT, SHADOW, ArmsByRole, VersionStore

KEPT_COPIES = 2
"""Versions in the cache besides those in use."""

Signature = tuple[Any, ...]


class ModelSource(Protocol):
    """A place that holds the latest version of a model."""

    is_remote: bool
    """Whether looking for a new version may take long."""
    missing: str
    """What to report while there is no model."""
    is_optional: bool
    """Whether a model that the source no longer has is given up; otherwise it stays in use."""

    def signature(self) -> Signature | None:
        """Return a value that changes with the model; None while there is none."""
        ...

    def fetch(self, signature: Signature) -> Path:
        """Return a folder with the model of a signature."""
        ...


class FolderSource:
    """A model folder that is replaced as a whole.

    Parameters
    ----------
    path
        The folder.
    """

    is_remote = False
    is_optional = False

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.missing = f"{self._path} does not exist: expected a folder written by kinrank train"

    def signature(self) -> Signature | None:
        """Return a value that changes with the folder; None while it is missing, as between the renames of a swap."""
        try:
            with os.scandir(self._path) as entries:
                files = sorted((file.name, file.stat()) for file in entries)
        except OSError:
            return None
        return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files) or None

    def fetch(self, signature: Signature) -> Path:  # noqa: ARG002
        """Return the folder."""
        return self._path


class LatestRollout:
    """Which versions of a store are in use, as of the last look: one for all roles, so that they change together.

    Parameters
    ----------
    store
        The store.
    """

    def __init__(self, store: VersionStore) -> None:
        self._store = store
        self.arms: ArmsByRole = {}

    def read(self) -> None:
        """Look at the store."""
        self.arms = self._store.rollout()


@dataclass(eq=False)
class StoreSource:
    """The version that a store has in a role, copied to this machine."""

    is_remote = True

    store: VersionStore
    """The versions."""
    cache: Path
    """Folder for the copies, which the processes of a machine can share."""
    role: str
    """The role in the rollout of the store."""
    latest: LatestRollout
    """What the sources of all roles share. The one of the current version, which is checked first, reads it."""

    def __post_init__(self) -> None:
        self.is_optional = self.role != CURRENT
        self.missing = f"{self.store} has no {self.role} version: upload one with kinrank admin models --publish MODEL"

    def signature(self) -> Signature | None:
        """Return the name of the version; None if there is none."""
        if self.role == CURRENT:
            self.latest.read()
        arm = self.latest.arms.get(self.role)
        return None if arm is None else (arm.version,)

    def share_of(self, fitted: str) -> float:
        """Return the share of the queries for a version in use: none as soon as the store names another one."""
        arm = self.latest.arms.get(self.role)
        return arm.share if arm is not None and arm.version.endswith(f"-{fitted}") else 0.0

    def fetch(self, signature: Signature) -> Path:
        """Return a verified copy of the version, and delete old ones that have no role."""
        copy = self.store.pull(signature[0], self.cache)
        named = {arm.version for arm in self.latest.arms.values()}
        others = [each for each in self.cache.glob("[0-9]*-*") if each.name not in named]
        for old in sorted(others, key=_last_use, reverse=True)[KEPT_COPIES:]:
            shutil.rmtree(old, ignore_errors=True)
        return copy


def _last_use(copy: Path) -> float:
    try:
        return copy.stat().st_mtime
    except OSError:  # another process deleted it
        return 0.0


class WorkFolder:
    """A given folder, or a temporary one that is made when it is needed.

    Parameters
    ----------
    path
        The folder. None: a temporary one, which is deleted by `close` or with this object.
    """

    def __init__(self, path: str | os.PathLike[str] | None) -> None:
        self.given = None if path is None else Path(path)
        self._temporary: tempfile.TemporaryDirectory[str] | None = None

    @property
    def path(self) -> Path:
        """The folder."""
        if self.given is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="kinrank-", ignore_cleanup_errors=True)
            self.given = Path(self._temporary.name)
        return self.given

    def close(self) -> None:
        """Delete the temporary folder."""
        if self._temporary is not None:
            self._temporary.cleanup()


def open_sources(name: str, address: str | os.PathLike[str], cache: WorkFolder) -> dict[str, ModelSource]:
    """Return the sources of a model by role: one for a folder, one for each role of a store."""
    if not VersionStore.is_at(address):
        return {CURRENT: FolderSource(address)}
    store, folder = VersionStore(address), cache.path / name
    latest = LatestRollout(store)
    return {role: StoreSource(store, folder, role, latest) for role in (CURRENT, CANARY, SHADOW)}
