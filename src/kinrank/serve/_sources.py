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
from typing import Any

from kinrank import folder
from kinrank.errors import KinrankError
from kinrank.rankers._local.texts import text_encoder
from kinrank.rankers.base import load
from kinrank.rankers.capabilities import can_adapt
from kinrank.serve._served_model import ServedModel
from kinrank.store.versions import VersionStore

KEPT_COPIES = 2
"""Versions in the cache besides the one in use."""

Signature = tuple[Any, ...]


class FolderSource:
    """A model folder that is replaced as a whole."""

    is_remote = False
    """Whether looking for a new version may take long."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self.missing = f"{self._path} does not exist: expected a folder written by kinrank train"
        """What to report while there is no model."""

    def signature(self) -> Signature | None:
        """Return a value that changes with the files of the model; None while there are none."""
        try:
            files = sorted(each for each in self._path.iterdir() if not folder.holds_arrays(each.name))
            files += sorted(folder.arrays_in(self._path).iterdir())
            stats = [(file.name, file.stat()) for file in files]
        except OSError:  # missing, or just being replaced
            return None
        return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in stats) or None

    def fetch(self, signature: Signature) -> Path:  # noqa: ARG002
        """Return the folder."""
        return self._path


@dataclass(eq=False)
class StoreSource:
    """The version of a store that is in use, copied to this machine; with the members of `FolderSource`."""

    is_remote = True

    store: VersionStore
    """The versions."""
    cache: Path
    """Folder for the copies, which the processes of a machine can share."""

    def __post_init__(self) -> None:
        self.missing = f"{self.store} has no version in use: upload one with kinrank admin models --publish MODEL"

    def signature(self) -> Signature | None:
        """Return the name of the version; None if there is none."""
        name = self.store.current()
        return None if name is None else (name,)

    def fetch(self, signature: Signature) -> Path:
        """Return a verified copy of the version, and delete old ones."""
        copy = self.store.pull(signature[0], self.cache)
        others = [each for each in self.cache.glob("[0-9]*-*") if each != copy]
        for old in sorted(others, key=_last_use, reverse=True)[KEPT_COPIES:]:
            shutil.rmtree(old, ignore_errors=True)
        return copy


def _last_use(copy: Path) -> float:
    try:
        return copy.stat().st_mtime
    except OSError:  # another process deleted it
        return 0.0


ModelSource = FolderSource | StoreSource
"""A place that holds the latest version of a model."""


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


def open_source(name: str, address: str | os.PathLike[str], cache: WorkFolder) -> ModelSource:
    """Return the source of a model: a folder, or a store of versions."""
    if not VersionStore.is_at(address):
        return FolderSource(address)
    return StoreSource(VersionStore(address), cache.path / name)


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
