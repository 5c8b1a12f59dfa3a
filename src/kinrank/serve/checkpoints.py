"""Models with the judgments they have learned, so that a start need not learn the whole history again."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from contextlib import suppress
from dataclasses import replace
from glob import escape
from pathlib import Path

from kinrank.errors import KinrankError
from kinrank.rankers.base import load
from kinrank.rankers.capabilities import can_adapt
from kinrank.rankers.local.texts import text_encoder
from kinrank.serve.served_model import ServedModel
from kinrank.serve.sources import WorkFolder

# What follows the name of the model. A mark may look like a number, and the name of another model may begin like this
# one and go on with a hyphen.
_REST = re.compile(r"-(?P<fitted>[0-9a-f]{12})-(?P<revision>\d+)-(?P<judgments>\d+)(-(?P<mark>[0-9a-f]+))?")


class Checkpoints:
    """Model folders next to each other, named by model, fitted version, revision, number of judged queries and mark.

    Processes of one machine share them: one writes, the others read. Old ones are deleted; a process that still has
    one memory-mapped keeps it until it lets go.

    Parameters
    ----------
    folder
        Where they are. None: in a temporary folder that is deleted with this object.
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
