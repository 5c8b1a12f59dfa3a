"""Models in use: how a new one is loaded, tested and swapped in."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from kinrank.errors import (
    IncompleteVersionError,
    KinrankError,
    ModelNotLoadedError,
    RejectedModelError,
    StaleReplicaError,
    UnsupportedByModelError,
)
from kinrank.rankers.base import Ranker, from_record
from kinrank.serve._events.log import EvidenceFeed
from kinrank.serve._learning import JudgmentLearner
from kinrank.serve._served_model import QueryEncoder, ServedModel, search_test, self_test, spellings_of, warm_up
from kinrank.serve._sources import ModelSource, Signature
from kinrank.serve.messages import Observer
from kinrank.serve.settings import Settings
from kinrank.store import fingerprint, read_model_and_examples

if TYPE_CHECKING:
    from kinrank.engines import FeatureSet


RETRY_PAUSE = 10.0
"""Seconds before a model is tried again that was too slow, as on a busy machine, or could not be fetched."""


@dataclass(eq=False, repr=False)
class ModelSlot:
    """A named model: the source that is watched, and the model in use."""

    name: str
    """The name that requests use."""
    source: ModelSource
    """Where the model comes from."""
    _: KW_ONLY
    settings: Settings
    """The deadline of the self-test, how files are read, and which encoders are allowed."""
    observer: Observer
    """Notified of every swap and refusal."""
    learner: JudgmentLearner | None
    """Learns judgments, if the service accepts them."""
    feed: EvidenceFeed | None = None
    """Follows what people choose, if the service accepts that."""
    search: FeatureSet | None = None
    """Features of the attached engine, if there is one."""

    def __post_init__(self) -> None:
        self.current: ServedModel | None = None
        self._loading = threading.Lock()
        self._swapping = threading.Lock()  # another one, because loading may take minutes
        self._seen: Signature | None = None
        self._load_failure: str | None = None
        self._outage: str | None = None
        self._retry_at = math.inf

    @property
    def refusal(self) -> str | None:
        """Why the latest model, its judgments or choices were not put into use; None if they were."""
        learning = [each.failure for each in (self.learner, self.feed) if each is not None]
        return next(filter(None, (self._load_failure, self._outage, *learning)), None)

    def refresh(self, *, force: bool = False) -> bool:
        """Load the model if its source has another one. Return whether it was loaded.

        Raise `RejectedModelError` if the model cannot be used or fetched; the current one stays. The same model
        is not tried again unless `force` is set, it was only too slow, or it could not be fetched completely.
        """
        with self._loading:
            seen = self._look()
            if seen is None and self.current is None:
                self._load_failure = self.source.missing
            unchanged = seen == self._seen and time.monotonic() < self._retry_at
            if seen is None or (unchanged and not force):
                return False
            try:
                served = self._load(seen)
            except Exception as error:  # whatever is wrong with the new model, the current one must stay
                self._seen, self._load_failure = seen, str(error)
                self._retry_at = time.monotonic() + RETRY_PAUSE if _is_temporary(error) else math.inf
                self.observer.model(self.name, None, "refused", self._load_failure)
                if not isinstance(error, KinrankError | OSError):
                    self.observer.error("load", error)
                raise RejectedModelError(f"{self.name}: {error}") from error
            self._load_failure = None
            self._retry_at = math.inf
            updated = self._updated(served)
            with self._swapping:
                self.current = updated
            self._seen = seen
            self.observer.model(self.name, served.fitted, "loaded")
            if not served.tested:
                detail = "the folder has no examples, so the model was not tested: save it with examples"
                self.observer.model(self.name, served.fitted, "untested", detail)
            if self.settings.explore and served.choices is None:  # not refused: going back to it must be possible
                detail = "explore has no effect: train the model on queries with texts and document ids"
                self.observer.model(self.name, served.fitted, "not-exploring", detail)
            return True

    def replay(self) -> None:
        """Learn new judgments and choices, stored by this or another process."""
        served = self.current
        if served is None:
            return
        updated = self._updated(served)  # may wait for the store, so a new model can be loaded meanwhile
        with self._swapping:
            if self.current is served:
                self.current = updated

    def _updated(self, served: ServedModel) -> ServedModel:
        if self.learner is not None:
            served = self.learner.update(served)
        return served if self.feed is None else self.feed.update(served)

    def loaded(self) -> ServedModel:
        """Return the model in use. Raise `ModelNotLoadedError` if there is none."""
        if self.current is None:
            raise ModelNotLoadedError(f"model {self.name!r} is not loaded yet: try again; GET /v1/model has the reason")
        return self.current

    def learning(self) -> tuple[ServedModel, JudgmentLearner]:
        """Return the model and what learns its judgments. Raise `UnsupportedByModelError` if it cannot learn.

        While it is not loaded, nobody knows: then raise `ModelNotLoadedError`.
        """
        if self.learner is None:
            raise UnsupportedByModelError("this service does not accept judgments: start it with --judgments")
        served = self.loaded()
        if served.revision is None:
            raise UnsupportedByModelError(
                f"model {self.name!r} ({type(served.base).__name__}) cannot learn without refitting: train it again "
                "with the judgments, or as the base of the ranker kin (--set base=...), which takes them at once"
            )
        return served, self.learner

    def check_learned(self, revision: int) -> None:
        """Raise `StaleReplicaError` unless the model has learned the judgments up to a revision."""
        learned = self.learning()[0].revision or 0
        if learned < revision:
            why = self.refusal or "try again, or ask another replica"
            raise StaleReplicaError(
                f"{self.name} has learned judgments up to revision {learned}, not {revision}: {why}"
            )

    def _look(self) -> Signature | None:
        """Return the signature of the source. Report once if it cannot be reached."""
        try:
            seen = self.source.signature()
        except (OSError, KinrankError) as error:
            if self._outage is None:
                self.observer.model(self.name, None, "unreachable", str(error))
            self._outage = str(error)
            raise RejectedModelError(f"{self.name}: {error}") from error
        self._outage = None
        return seen

    def _load(self, seen: Signature) -> ServedModel:
        for _ in range(3):
            path = self.source.fetch(seen)
            version = fingerprint(path)
            record, examples = read_model_and_examples(path, copy=not self.settings.map_models)
            ranker = from_record(record, allow_encoders=self.settings.encoders)
            self._check_features(ranker)
            warm_up(ranker, examples)
            tested = self_test(ranker, examples, self.settings.deadline)
            encoder, spellings = QueryEncoder(ranker), spellings_of(ranker)
            if self.search is not None:
                search_test(ranker, encoder, self.search)
                spellings()  # here, and not in the first search that finds nothing
            if version == fingerprint(path):  # otherwise the folder was replaced while it was read
                revision = None if self.learner is None else self.learner.starting_revision(ranker)
                return ServedModel(version, ranker, ranker, tested, encoder, revision=revision, spellings=spellings)
        raise RejectedModelError(f"{path} changed three times while it was read: write it less often")

    def _check_features(self, ranker: Ranker) -> None:
        """Raise if requests that suit the model in use would not suit this one; an engine is tested separately."""
        if self.current is None or self.search is not None or self.settings.accept_features:
            return
        before, after = self.current.base.feature_names_, ranker.feature_names_
        if before == after:
            return
        added, removed = ([name for name in a if name not in b] for a, b in ((after, before), (before, after)))
        changes = [
            f"{what} {', '.join(map(repr, names[:5]))}"
            for what, names in (("it adds", added), ("it lacks", removed))
            if names
        ]
        raise RejectedModelError(
            f"the model has other features than the one in use: {'; '.join(changes) or 'they are in another order'}. "
            "Clients would have to change with it: serve it under another name, or set accept_features=True"
        )


def _is_temporary(error: Exception) -> bool:
    """Return whether the same model may be usable later."""
    rejected_for_now = isinstance(error, RejectedModelError) and error.temporary
    return rejected_for_now or isinstance(error, IncompleteVersionError | OSError)
