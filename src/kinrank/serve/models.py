"""A model in use, and how it is replaced under load: loaded and tested beside the old one, then swapped at once."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kinrank.errors import RefusedModelError
from kinrank.folder import MANIFEST
from kinrank.rankers import RANKERS
from kinrank.rankers.base import Ranker, from_record
from kinrank.serve.journal import Journal
from kinrank.serve.judgments import Entry, learn, learns
from kinrank.serve.observer import Observer
from kinrank.serve.selftest import SlowModelError, self_test
from kinrank.store import read_model_and_examples

SLOW_PAUSE = 10.0
"""Seconds until a model that was too slow is tried again: the machine may have been busy."""


@dataclass(frozen=True, eq=False)
class Served:
    """A model that answers; what it holds never changes, so a request that has it keeps it.

    Attributes
    ----------
    version : str
        The first digits of the manifest's SHA-256: the same folder, the same version.
    ranker : Ranker
        With the judgments it has learned since.
    base : Ranker
        As it was fitted.
    tested : bool
        Whether it came with examples to test it on.
    judgments : int
        Judged queries that it has learned from since it was fitted.
    """

    version: str
    ranker: Ranker
    base: Ranker
    tested: bool
    judgments: int = 0

    def describe(self) -> dict[str, Any]:
        """For people and monitoring."""
        return {
            "version": self.version,
            "ranker": RANKERS.name_of(type(self.ranker)),
            "feature_names": list(self.ranker.feature_names_),
            "judged_queries": len(self.ranker.qid_) if learns(self.ranker) else None,
            "judgments_learned": self.judgments,
            "self_tested": self.tested,
        }


class ModelSlot:
    """The place of one model: a folder that is watched, and what is in use.

    Parameters
    ----------
    name
        What requests call it.
    path
        Its folder.
    deadline
        Seconds that a query may take in the self-test.
    observer
        Is told of every swap and refusal.
    journal
        Judgments to learn from, where they are taken.
    """

    def __init__(
        self, name: str, path: str | os.PathLike[str], *, deadline: float, observer: Observer, journal: Journal | None
    ) -> None:
        self.name = name
        self.path = Path(path)
        self.current: Served | None = None
        self.journal = journal
        self._deadline = deadline
        self._observer = observer
        self._lock = threading.Lock()
        self._seen: tuple[Any, ...] | None = None
        self._refused: str | None = None
        self._unlearned: str | None = None
        self._retry_at = math.inf
        self._read_to = 0

    @property
    def refusal(self) -> str | None:
        """Why the last model offered, or what its journal holds, was not taken into use; None where all was."""
        return self._refused or self._unlearned

    def refresh(self, *, force: bool = False) -> bool:
        """Take the model of the folder into use where it has changed; whether it was taken.

        Raises
        ------
        RefusedModelError
            Where it cannot be taken. The one in use stays; the same folder is not tried again unless forced, or unless
            it was only too slow.
        """
        with self._lock:
            seen = self._signature()
            known = seen == self._seen and time.monotonic() < self._retry_at
            if seen is None or (known and not force):
                return False
            try:
                served = self._load()
            except Exception as error:
                # Whatever is wrong with a model that somebody offers, the one in use must stay.
                self._seen, self._refused = seen, str(error)
                self._retry_at = time.monotonic() + SLOW_PAUSE if isinstance(error, SlowModelError) else math.inf
                self._observer.model(self.name, None, "refused", self._refused)
                raise RefusedModelError(f"{self.name}: {error}") from error
            self._refused = None
            self._retry_at = math.inf
            self._read_to = 0
            self.current = self._taught(served)
            self._seen = seen
            self._observer.model(self.name, served.version, "taken")
            return True

    def replay(self) -> None:
        """Learn from judgments that have come into the journal, by this process or another."""
        with self._lock:
            if self.current is not None:
                self.current = self._taught(self.current)

    def _load(self) -> Served:
        for _ in range(3):
            version = self._version()
            record, examples = read_model_and_examples(self.path)
            ranker = from_record(record)
            tested = self_test(ranker, examples, self._deadline)
            if version == self._version():  # else the folder was replaced while it was read
                return Served(version, ranker, ranker, tested)
        raise RefusedModelError(f"{self.path} is being replaced too often to be read")

    def _taught(self, served: Served) -> Served:
        """With what has come into the journal; as it is where that cannot be learned, to be tried again."""
        try:
            taught = self._learned(served)
        except Exception as error:
            # A damaged journal must keep no good model from answering, nor other models from being watched.
            unlearned = f"judgments were not learned: {error}"
            if unlearned != self._unlearned:
                self._observer.model(self.name, served.version, "unlearned", unlearned)
            self._unlearned = unlearned
            return served
        self._unlearned = None
        return taught

    def _learned(self, served: Served) -> Served:
        if self.journal is None or not learns(served.base):
            return served
        texts, end = self.journal.read(self._read_to)
        if not texts:
            return served
        entries = [Entry.parse(text) for text in texts]
        ranker, unfit = learn(served.ranker, entries, served.version, served.base.qid_)
        self._read_to = end
        self._observer.model(
            self.name, served.version, "learned", f"{len(entries)} judged queries" + (f", {unfit} unfit" * bool(unfit))
        )
        return replace(served, ranker=ranker, judgments=served.judgments + len(entries) - unfit)

    def _version(self) -> str:
        return hashlib.sha256((self.path / MANIFEST).read_bytes()).hexdigest()[:12]

    def _signature(self) -> tuple[Any, ...] | None:
        """What changes when the folder does; None while it is not there, as between the two renames of a swap."""
        try:
            files = sorted((file.name, file.stat()) for file in os.scandir(self.path))
        except OSError:
            return None
        return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files) or None
