"""The evidence of a model, as the replicas have counted it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from kinrank.data.hashes import hash_texts
from kinrank.errors import OtherHistoryError
from kinrank.memory.evidence import Evidence, chosen_ids
from kinrank.rankers.capabilities import takes_evidence
from kinrank.serve.events.store import CellRow, EventStore
from kinrank.serve.following import Follower
from kinrank.serve.observer import Observer
from kinrank.serve.served_model import ServedModel


class EvidenceFeed(Follower):
    """Follows the cells of one model, and hands them to the versions of the model that are in use.

    Parameters
    ----------
    name
        The name of the model.
    store
        Where the cells are.
    first_day
        Returns the first day that counts; the store deletes earlier ones.
    observer
        Notified when they cannot be read.
    """

    what = "choices"

    def __init__(self, name: str, store: EventStore, first_day: Callable[[], int], observer: Observer) -> None:
        super().__init__(name, observer)
        self._store = store
        self._first_day = first_day
        self._lock = threading.Lock()
        self._evidence: Evidence | None = None
        self._position = 0, ""

    def update(self, served: ServedModel) -> ServedModel:
        """Return the model with the latest evidence, or with that of before if the database is away."""
        if not takes_evidence(served.ranker):
            return served
        with self._lock:
            try:
                self._read_changes()
                self.failure = None
            except Exception as error:  # a store that is away must not stop a good model
                self._report(served, error)
            self._expire()
            evidence, (revision, mark) = self._evidence, self._position
        if served.ranker.recent_ is evidence:
            return served
        ranker = served.ranker.with_recent(evidence)
        return replace(served, ranker=ranker, evidence=revision, evidence_mark=mark)

    @property
    def revision(self) -> int:
        """The revision up to which all choices were read, of this and other models."""
        return self._position[0]

    def _read_changes(self) -> None:
        try:
            self._read()
        except OtherHistoryError:  # an older copy of the database was restored
            anew = EvidenceFeed(self._name, self._store, self._first_day, self._observer)
            anew._read()
            self._evidence, self._position = anew._evidence, anew._position

    def _read(self) -> None:
        while True:
            since, mark = self._position
            changes = self._store.read(self._name, since, mark=mark)
            if changes.cells:
                new = _to_evidence(changes.cells)
                self._evidence = new if self._evidence is None else self._evidence.updated(new)
            self._position = changes.through, changes.mark
            if changes.through == changes.revision:
                return

    def _expire(self) -> None:
        first = self._first_day()
        if self._evidence is not None and self._evidence.days is not None and self._evidence.days[0] < first:
            self._evidence = self._evidence.since(first)


def _to_evidence(cells: list[CellRow]) -> Evidence:
    query, document, day, looks, choices, few = zip(*cells, strict=True)
    keys = np.array(query, dtype=np.int64).view(np.uint64)
    documents = np.array(document, dtype=np.str_)
    found = Evidence.from_hashes(keys, hash_texts(documents), looks, choices, day, few)
    return Evidence(found.get_state(), ids=chosen_ids(documents, choices))
