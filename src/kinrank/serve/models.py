"""Models in use. A new model is loaded and tested next to the current one, then swapped in atomically."""

from __future__ import annotations

import hashlib
import math
import os
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kinrank.errors import KinrankError, RejectedModelError
from kinrank.folder import MANIFEST
from kinrank.rankers import RANKERS
from kinrank.rankers.base import Ranker, from_record
from kinrank.rankers.capabilities import can_adapt
from kinrank.serve.encoding import QueryEncoder
from kinrank.serve.journal import Journal
from kinrank.serve.live_judgments import Entry, learn
from kinrank.serve.observer import Observer
from kinrank.serve.selftest import SearchInputs, SlowModelError, search_test, self_test, warm_up
from kinrank.store import read_model_and_examples

FIT_SHARE = 0.1  # of the judged queries not seen by trees: then a fit is recommended
SLOW_PAUSE = 10.0
"""Seconds before a model that was too slow is tried again: the machine may have been busy."""


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model in use. It never changes, so a request keeps the model it started with.

    Attributes
    ----------
    version : str
        The first digits of the manifest's SHA-256; identical folders have identical versions.
    ranker : Ranker
        The model with the judgments learned since it was fitted.
    base : Ranker
        The model as it was fitted.
    tested : bool
        Whether its folder had examples for the self-test.
    encoder : QueryEncoder
        Adds the vector of a query's text. It stays the same when judgments are learned, with what it remembers.
    judgments : int
        Judged queries learned since it was fitted.
    """

    version: str
    ranker: Ranker
    base: Ranker
    tested: bool
    encoder: QueryEncoder
    judgments: int = 0

    @property
    def ranker_name(self) -> str:
        """The registered name of the ranker."""
        return RANKERS.name_of(type(self.ranker))

    @property
    def judged_queries(self) -> int | None:
        """The number of judged queries that the model holds; None if it does not keep them."""
        return len(self.ranker.qid_) if can_adapt(self.ranker) else None

    @property
    def unseen_judgments(self) -> int:
        """The number of judged queries that a part of the model learns from only with the next fit."""
        return self.ranker.n_unseen_ if can_adapt(self.ranker) else 0

    @property
    def fit_recommended(self) -> bool:
        """Whether enough judged queries await a new fit."""
        return self.unseen_judgments >= FIT_SHARE * (self.judged_queries or math.inf)


class ModelSlot:
    """A named model: the folder that is watched, and the model in use.

    Parameters
    ----------
    name
        The name that requests use.
    path
        The model folder.
    deadline
        Seconds that a query may take in the self-test.
    observer
        Notified of every swap and refusal.
    journal
        Judgments to learn from, if the service accepts them.
    search
        What searches pass to the model, if an engine is attached.
    """

    def __init__(
        self,
        name: str,
        path: str | os.PathLike[str],
        *,
        deadline: float,
        observer: Observer,
        journal: Journal | None,
        search: SearchInputs | None = None,
    ) -> None:
        self.name = name
        self.path = Path(path)
        self.deadline = deadline
        self.current: ServedModel | None = None
        self.journal = journal
        self._search = search
        self._observer = observer
        self._lock = threading.Lock()
        self._seen: tuple[Any, ...] | None = None
        self._load_failure: str | None = None
        self._learn_failure: str | None = None
        self._retry_at = math.inf
        self._position = 0

    @property
    def refusal(self) -> str | None:
        """Why the latest model or its judgments were not put into use; None if they were."""
        return self._load_failure or self._learn_failure

    def refresh(self, *, force: bool = False) -> bool:
        """Load the model if its folder has changed. Return whether it was loaded.

        Raises
        ------
        RejectedModelError
            The model cannot be used. The current one stays. The same folder is not tried again unless `force` is
            set or it was only too slow.
        """
        with self._lock:
            seen = self._signature()
            unchanged = seen == self._seen and time.monotonic() < self._retry_at
            if seen is None or (unchanged and not force):
                return False
            try:
                served = self._load()
            except Exception as error:  # whatever is wrong with the new model, the current one must stay
                self._seen, self._load_failure = seen, str(error)
                self._retry_at = time.monotonic() + SLOW_PAUSE if isinstance(error, SlowModelError) else math.inf
                self._observer.model(self.name, None, "refused", self._load_failure)
                self._report_unexpected("load", error)
                raise RejectedModelError(f"{self.name}: {error}") from error
            self._load_failure = None
            self._retry_at = math.inf
            self._position = 0
            self.current = self._updated(served)
            self._seen = seen
            self._observer.model(self.name, served.version, "loaded")
            return True

    def replay(self) -> None:
        """Learn from new judgments in the journal, written by this or another process."""
        with self._lock:
            if self.current is not None:
                self.current = self._updated(self.current)

    def _load(self) -> ServedModel:
        for _ in range(3):
            version = self._version()
            record, examples = read_model_and_examples(self.path)
            ranker = from_record(record)
            warm_up(ranker, examples)
            tested = self_test(ranker, examples, self.deadline)
            encoder = QueryEncoder(ranker)
            if self._search is not None:
                search_test(ranker, encoder, self._search)
            if version == self._version():  # otherwise the folder was replaced while it was read
                return ServedModel(version, ranker, ranker, tested, encoder)
        raise RejectedModelError(f"{self.path} changed three times while it was read: write it less often")

    def _updated(self, served: ServedModel) -> ServedModel:
        """Return the model with new judgments applied, or unchanged if that fails; the next call retries."""
        try:
            updated = self._learn(served)
        except Exception as error:  # a damaged journal must not stop a good model, nor the watch over other models
            failure = f"judgments were not learned: {error}"
            if failure != self._learn_failure:
                self._observer.model(self.name, served.version, "learn-failed", failure)
                self._report_unexpected("learn", error)
            self._learn_failure = failure
            return served
        self._learn_failure = None
        return updated

    def _learn(self, served: ServedModel) -> ServedModel:
        if self.journal is None or not can_adapt(served.base):
            return served
        texts, end = self.journal.read(self._position)
        if not texts:
            return served
        entries = [Entry.parse(text) for text in texts]
        ranker, skipped = learn(served.ranker, entries, served.version, served.base.qid_)
        self._position = end
        detail = f"{len(entries)} judged queries" + (f", {skipped} skipped" if skipped else "")
        self._observer.model(self.name, served.version, "learned", detail)
        return replace(served, ranker=ranker, judgments=served.judgments + len(entries) - skipped)

    def _report_unexpected(self, where: str, error: Exception) -> None:
        if not isinstance(error, KinrankError | OSError):
            self._observer.error(where, error)

    def _version(self) -> str:
        return hashlib.sha256((self.path / MANIFEST).read_bytes()).hexdigest()[:12]

    def _signature(self) -> tuple[Any, ...] | None:
        """Return a value that changes with the folder; None while it is missing, as between the renames of a swap."""
        try:
            files = sorted((file.name, file.stat()) for file in os.scandir(self.path))
        except OSError:
            return None
        return tuple((name, stat.st_ino, stat.st_size, stat.st_mtime_ns) for name, stat in files) or None
