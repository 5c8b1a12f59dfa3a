"""Keep a model up to date with the judgments in a store."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kinrank.errors import DataError, OtherHistoryError
from kinrank.rankers.base import Ranker
from kinrank.rankers.capabilities import can_adapt
from kinrank.serve._judgments import Changes, JudgmentRow, JudgmentStore, Learned, learn, make_entries, merge_records
from kinrank.serve._kept import KeptCopy
from kinrank.serve._served_model import Follower, ServedModel, warm_up
from kinrank.serve._sources import Checkpoints
from kinrank.serve.messages import JudgedQuery
from kinrank.serve.observer import Observer
from kinrank.store.versions import CURRENT

CHECKPOINT_QUERIES, CHECKPOINT_SHARE = 10_000, 0.05
"""A checkpoint is written when so many queries, and this share of all, were learned since the last one."""


class JudgmentLearner(Follower):
    """Learns the judgments of one model from a store that other processes write to as well.

    It learns from a copy on this machine while the store is away. Models of other roles may have learned other
    judgments, so each role has its own copy.
    """

    what = "judgments"

    def __init__(
        self,
        name: str,
        store: JudgmentStore,
        observer: Observer,
        checkpoints: Checkpoints,
        kept: KeptCopy | None = None,
        role: str = CURRENT,
    ) -> None:
        super().__init__(name, observer)
        self._kept, self._kept_as = kept, f"{name}:{role}"
        self.known = False
        """Whether the judgments were read, from the store, a checkpoint or the copy."""
        self._store = store
        self._checkpoints = checkpoints
        self._writer: threading.Thread | None = None
        self._consolidated_at = 0

    def store(self, served: ServedModel, queries: Sequence[JudgedQuery], source: str) -> int:
        """Store judged queries durably, all or none, and return the revision that has them."""
        entries = make_entries(served.ranker, served.base, served.fitted, queries)
        rows = [JudgmentRow(entry.judged.qid, source, entry.dump()) for entry in entries]
        return self._store.append(self._name, rows, merge_records)

    def withdraw(self, qid: str | None, source: str | None) -> tuple[int, int]:
        """Withdraw judgments; see `JudgmentStore.delete`."""
        return self._store.delete(self._name, query=qid, source=source)

    def starting_revision(self, base: Ranker) -> int | None:
        """Return the revision that a model, as it was fitted, has learned; None if it cannot learn."""
        return (base.judgments_through_ or 0) if can_adapt(base) else None

    def update(self, served: ServedModel) -> ServedModel:
        """Return the model with all judgments in the store, or unchanged if that fails; the next call retries."""
        if served.revision is None:
            self.known = True
            return served
        resumed = served
        try:
            resumed = self._resumed(served)
            try:
                updated = self._learn(resumed)
            except OtherHistoryError as error:
                updated = self._relearn(served, error)
            if served.ranker is served.base and updated.ranker is not served.base:
                warm_up(updated.ranker, None)  # code differs for arrays that were read and arrays that grew
        except Exception as error:  # a store that is away, or checkpoints of others, must not stop a good model
            self._report(served, error)
            self.known = self.known or resumed is not served
            return self._from_copy(max(served, resumed, key=lambda model: model.revision or 0))
        self.failure, self.known = None, True
        self._consolidate(updated)
        return updated

    def _from_copy(self, served: ServedModel) -> ServedModel:
        """Return a model with the judgments of the copy, as far as it has not learned them."""
        known = served.revision or 0
        changes = None if self._kept is None else self._kept.judgments(self._kept_as, known)
        if changes is None:
            return served
        try:
            if changes.through > known:
                served = self._with(served, learn(served.ranker, [changes], served.base, served.fitted))
        except DataError as error:
            self._observer.error("kept", error)
            return served
        self.known = True
        return served

    def _resumed(self, served: ServedModel) -> ServedModel:
        """Return the model as of the latest checkpoint, if it has yet to learn anything, or one has just been written.

        Its judgments are in memory-mapped arrays that all processes share, and its points are indexed.
        """
        fresh = served.judgments == 0
        written = self._writer is not None and not self._writer.is_alive()
        if not (fresh or written):
            return served
        since = served if fresh else replace(served, revision=self._consolidated_at)
        resumed = self._checkpoints.latest(self._name, since) or served
        self._writer, self._consolidated_at = None, 0 if resumed is served else (resumed.revision or 0)
        return resumed

    def _consolidate(self, served: ServedModel) -> None:
        """Start to write a checkpoint if enough was learned since the last one; `_resumed` takes it up."""
        enough = max(CHECKPOINT_QUERIES, CHECKPOINT_SHARE * (served.judged_queries or 0))
        if self._writer is not None or served.judgments - served.consolidated < enough:
            return
        self._writer = threading.Thread(target=self._write, args=(served,), name="checkpoint", daemon=True)
        self._writer.start()

    def _write(self, served: ServedModel) -> None:
        try:
            self._checkpoints.write(self._name, served)
        except Exception as error:  # a full disk must not stop learning
            self._observer.error("checkpoint", error)

    def _relearn(self, served: ServedModel, error: OtherHistoryError) -> ServedModel:
        """Return the fitted model with the judgments that the store has now."""
        fitted = replace(
            served,
            ranker=served.base,
            revision=self.starting_revision(served.base),
            mark="",
            judgments=0,
            consolidated=0,
        )
        if self._kept is not None:
            self._kept.forget_judgments(self._kept_as)
        updated = self._learn(fitted)
        self._checkpoints.discard(self._name)
        self._writer, self._consolidated_at = None, 0
        self._observer.model(self._name, served.fitted, "relearned", f"{error}; all were learned anew")
        return updated

    def _learn(self, served: ServedModel) -> ServedModel:
        known = served.revision or 0
        if (known, served.mark) == self._store.position(self._name):
            return served
        pages = self._copied(self._store.pages(self._name, known, served.mark), known)
        return self._with(served, learn(served.ranker, pages, served.base, served.fitted))

    def _copied(self, pages: Iterable[Changes], since: int) -> Iterator[Changes]:
        """Yield changes, and keep a copy of them."""
        for page in pages:
            if self._kept is not None:
                self._kept.keep_judgments(self._kept_as, since, page)
            since = page.through
            yield page

    def _with(self, served: ServedModel, result: Learned) -> ServedModel:
        """Return a model with what was learned, and report that."""
        if result.learned or result.skipped:
            detail = f"{result.learned} judged queries" + (f", {result.skipped} skipped" if result.skipped else "")
            self._observer.model(self._name, served.fitted, "learned", detail)
        judgments = served.judgments + result.learned
        return replace(served, ranker=result.ranker, revision=result.revision, mark=result.mark, judgments=judgments)
