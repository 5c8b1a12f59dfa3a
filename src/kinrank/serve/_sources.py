"""Where models come from: a watched folder, a store of numbered versions, and checkpoints of what was learned since."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, replace
from glob import escape
from pathlib import Path
from typing import Any, Protocol

from kinrank.errors import KinrankError
from kinrank.rankers._local.texts import text_encoder
from kinrank.rankers.base import load
from kinrank.rankers.capabilities import can_adapt
from kinrank.serve._served_model import ServedModel
from kinrank.store.versions import CANARY, CURRENT, ArmsByRole, VersionStore

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
    """A model folder that is replaced as a whole."""

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


class _LatestRollout:
    """Which versions of a store are in use, as of the last look: one for all roles, so that they change together."""

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
    latest: _LatestRollout
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
    """A given folder, or a temporary one that is made when it is needed."""

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
    latest = _LatestRollout(store)
    return {role: StoreSource(store, folder, role, latest) for role in (CURRENT, CANARY)}


# What follows the name of the model. A mark may look like a number, and the name of another model may begin like this
# one and go on with a hyphen.
_REST = re.compile(r"-(?P<fitted>[0-9a-f]{12})-(?P<revision>\d+)-(?P<judgments>\d+)(-(?P<mark>[0-9a-f]+))?")


class Checkpoints:
    """Model folders next to each other, named by model, fitted version, revision, number of judged queries and mark.

    Processes of one machine share them: one writes, the others read. Old ones are deleted; a process that still has
    one memory-mapped keeps it until it lets go.
    """

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._work = WorkFolder(folder)

    def latest(self, name: str, served: ServedModel) -> ServedModel | None:
        """Return the model as of the latest checkpoint that is newer than it; None if there is none."""
        for revision, judgments, mark, path in self._latest_first(name, served.fitted):
            if revision <= (served.revision or 0):
                break
            with suppress(KinrankError, OSError):  # damaged, or deleted by another process: take an older one
                encoder = text_encoder(served.base)
                ranker = load(path, allow_encoders=[] if encoder is None else [encoder.spec])
                if can_adapt(ranker):
                    ranker.prepare_to_learn()
                return replace(
                    served, ranker=ranker, revision=revision, mark=mark, judgments=judgments, consolidated=judgments
                )
        return None

    def write(self, name: str, served: ServedModel) -> None:
        """Write a checkpoint and delete older ones, unless another process is at it."""
        self._work.path.mkdir(parents=True, exist_ok=True)
        with open(self._work.path / f"{name}.lock", "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            own = f"{name}-{served.fitted}-{served.revision}-{served.judgments}" + (served.mark and f"-{served.mark}")
            served.ranker.save(self._work.path / own, judgments_through=served.revision)
            self.discard(name, besides=own)

    def discard(self, name: str, *, besides: str = "") -> None:
        """Delete the checkpoints of a model, but for one."""
        for _, path in self._of(name):
            if path.name != besides:
                shutil.rmtree(path, ignore_errors=True)

    def _of(self, name: str) -> list[tuple[re.Match[str], Path]]:
        """Return the checkpoints of a model, with the parts of their names."""
        folder = self._work.given
        if folder is None or not folder.is_dir():
            return []
        matches = ((_REST.fullmatch(path.name.removeprefix(name)), path) for path in folder.glob(f"{escape(name)}-*"))
        return [(match, path) for match, path in matches if match]

    def _latest_first(self, name: str, fitted: str) -> list[tuple[int, int, str, Path]]:
        """Return revision, number of judged queries, mark and folder of each checkpoint."""
        return sorted(
            (
                (int(match["revision"]), int(match["judgments"]), match["mark"] or "", path)
                for match, path in self._of(name)
                if match["fitted"] == fitted
            ),
            reverse=True,
        )
