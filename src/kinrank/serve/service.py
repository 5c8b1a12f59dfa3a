"""The service without a transport: candidates in, rankings out, never without an answer."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kinrank.errors import ParameterError, RefusedModelError, UnableModelError, UnknownModelError
from kinrank.serve.batches import Batcher, Job
from kinrank.serve.insight import explanation_of, weights_of
from kinrank.serve.interleave import team_draft
from kinrank.serve.journal import Journal
from kinrank.serve.judgments import entries_of, learns
from kinrank.serve.messages import Candidates, Fallback, Judged, Ranking, Weights
from kinrank.serve.models import ModelSlot, Served
from kinrank.serve.observer import Observer
from kinrank.serve.ranking import BatchRanker
from kinrank.serve.settings import Settings

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_SILENT = Observer()
_UNKNOWN = "there is no model of this name here: GET /v1/model names those there are"


class Service:
    """Ranks with models that are watched, replaced and taught while it answers.

    Parameters
    ----------
    models
        Name to folder. The first is used where a request names none.
    settings
        Deadlines and bounds.
    observer
        Hears of everything worth counting.
    judgments
        A folder for the journals of new judgments, one per model; without it none are taken.
    watch
        Further things to look at every `Settings.watch` seconds.
    coming
        How many rankings the transport is about to ask for, or waits for; see `Settings.linger`.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from kinrank import KnnRanker
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(40)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     KnnRanker(5).fit(camps).save(folder, examples=camps[:3])
    ...     with Service({"camps": folder}, settings=Settings(deadline=1.0)) as service:
    ...         service.rank(Candidates(["a", "b"], np.float32([[0.1, 1.0], [0.9, 1.0]]))).ids
    ['b', 'a']
    """

    def __init__(
        self,
        models: Mapping[str, str | os.PathLike[str]],
        *,
        settings: Settings | None = None,
        observer: Observer = _SILENT,
        judgments: str | os.PathLike[str] | None = None,
        watch: Iterable[Callable[[], None]] = (),
        coming: Callable[[], int] = lambda: 0,
    ) -> None:
        if not models:
            raise ParameterError("a service needs at least one model: give it a name and a folder")
        for name in models:
            if not _NAME.match(name):
                raise ParameterError(f"the name of a model has letters, digits, '-' and '_', at most 64, got {name!r}")
        self.settings = settings or Settings()
        self.observer = observer
        self.slots = {
            name: ModelSlot(
                name,
                path,
                deadline=self.settings.deadline,
                observer=observer,
                journal=None if judgments is None else Journal(Path(judgments) / f"{name}.log"),
            )
            for name, path in models.items()
        }
        self.default = next(iter(self.slots))
        self._rankers = {
            name: BatchRanker(slot, far=self.settings.far, observer=observer) for name, slot in self.slots.items()
        }
        self.coming = coming
        self._batchers: dict[str, Batcher] = {}
        self._watched = [self._refresh, *watch]
        self._stop = threading.Event()
        self._watcher: threading.Thread | None = None

    # --- life -----------------------------------------------------------------------------------------------------

    def start(self, *, strict: bool = True) -> None:
        """Load the models and begin to watch them.

        Parameters
        ----------
        strict
            Raise where a model cannot be loaded. Otherwise it is waited for, and its queries stay in the engine's
            order until it comes.
        """
        for slot in self.slots.values():
            try:
                if not slot.refresh():
                    absent = f"{slot.path}: is not there; expected a folder that kinrank train wrote"
                    self.observer.model(slot.name, None, "awaited", absent)
                    raise RefusedModelError(absent)
            except Exception as error:
                if strict:
                    raise
                self._told("start", error)
        self._batchers = {
            name: Batcher(
                ranker,
                failed=lambda error: self.observer.error("rank", error),
                backlog=self.settings.backlog,
                batch=self.settings.batch,
                linger=self.settings.linger,
                coming=lambda: self.coming(),
                name=f"rank-{name}",
            )
            for name, ranker in self._rankers.items()
        }
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)
        self._watcher.start()

    def close(self) -> None:
        """End the threads, when what they have begun is done."""
        self._stop.set()
        if self._watcher is not None:
            self._watcher.join(timeout=5.0)
        for batcher in self._batchers.values():
            batcher.close()

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ready(self) -> bool:
        """Whether every model is loaded."""
        return all(slot.current is not None for slot in self.slots.values())

    # --- ranking --------------------------------------------------------------------------------------------------

    def submit(
        self,
        candidates: Candidates,
        model: str | None,
        deliver: Callable[[Ranking], None],
        *,
        expires: float | None = None,
    ) -> None:
        """Rank candidates in the thread of a model, which then calls `deliver`.

        Whoever waits longer than the deadline answers with `late` and ignores what is delivered after. Where the
        deadline has begun before, `expires` says when it ends, by `time.perf_counter`.
        """
        name = self.default if model is None else model
        if name not in self.slots:
            deliver(_unknown(candidates))
            return
        asked = time.perf_counter()
        job = Job(candidates, asked, asked + self.settings.deadline if expires is None else expires, deliver)
        if not self._batchers[name].submit(job):
            deliver(self._rankers[name].in_engine_order(candidates, Fallback.LATE, "too many queries wait"))

    def submit_interleaved(
        self,
        candidates: Candidates,
        models: tuple[str, str],
        seed: str,
        deliver: Callable[[Ranking], None],
        *,
        expires: float | None = None,
    ) -> None:
        """Rank with two models and let them take turns; both must answer, or the engine's order stays."""
        answers: dict[int, Ranking] = {}
        lock = threading.Lock()

        def collect(team: int, ranking: Ranking) -> None:
            with lock:
                answers[team] = ranking
                whole = len(answers) == 2
            if whole:
                deliver(_interleaved(answers[0], answers[1], models, seed))

        for team, model in enumerate(models):
            own = partial(collect, team)
            self.submit(candidates, model, own, expires=expires)

    def late(self, candidates: Candidates, model: str | None) -> Ranking:
        """What goes out when the deadline has passed."""
        detail = f"not ranked within {self.settings.deadline * 1000:g} ms"
        name = model if model in self.slots else self.default
        return Ranking(candidates.ids, model=name, fallback=Fallback.LATE, detail=detail)

    def rank(self, candidates: Candidates, *, model: str | None = None) -> Ranking:
        """Rank candidates, waiting no longer than the deadline."""
        done = threading.Event()
        answers: list[Ranking] = []

        def deliver(ranking: Ranking) -> None:
            answers.append(ranking)
            done.set()

        self.submit(candidates, model, deliver)
        ranking = answers[0] if done.wait(self.settings.deadline) else self.late(candidates, model)
        self.count(ranking)
        return ranking

    def count(self, answer: Ranking | Weights) -> None:
        """Tell the observer of an answer that goes out; whoever uses `submit` calls it."""
        if answer.fallback is not None:
            self.observer.fallback(answer.model or "unknown", answer.fallback)

    def weights(self, candidates: Candidates, *, model: str | None = None) -> Weights:
        """The weights of a query's own model, in the thread of the caller.

        Raises
        ------
        UnableModelError
            Where the model has no weights: its learner is not linear.
        """
        name = self.default if model is None else model
        if name not in self.slots:
            return Weights(fallback=Fallback.NO_MODEL, detail=_UNKNOWN)
        served = self.slots[name].current
        if served is None:
            return Weights(model=name, fallback=Fallback.NO_MODEL, detail="no model is loaded")
        return weights_of(served, name, candidates)

    def explain(self, candidates: Candidates, *, model: str | None = None, most: int = 10) -> dict[str, Any] | None:
        """Which judged queries decided, how far they are, and the weights beside the global ones; None if unknown."""
        slot = self.slots.get(self.default if model is None else model)
        served = None if slot is None else slot.current
        if served is None:
            return None
        return explanation_of(served, candidates, most)

    # --- models and judgments -------------------------------------------------------------------------------------

    def describe(self) -> dict[str, Any]:
        """Every model: what is in use, and why the last one offered was refused, where it was."""
        return {
            name: {
                "default": name == self.default,
                "refused": slot.refusal,
                "loaded": None if slot.current is None else slot.current.describe(),
            }
            for name, slot in self.slots.items()
        }

    def reload(self, model: str | None = None) -> Served:
        """Take a model's folder into use now, changed or not.

        Raises
        ------
        RefusedModelError
            Where it is not there or not right; the one in use stays.
        """
        slot = self.slots[self._known(model)]
        if not slot.refresh(force=True) or slot.current is None:
            raise RefusedModelError(f"{slot.name}: its folder is not there")
        return slot.current

    def judge(self, some: Sequence[Judged], *, model: str | None = None) -> None:
        """Keep judged queries; when it returns they are on disk, and the model learns from them within a moment.

        Raises
        ------
        UnableModelError
            Where the service takes no judgments, or the model does not learn without fitting again.
        DataError
            Where the judged queries do not fit the model: none of them is kept.
        NotKeptError
            Where the disk does not take them.
        """
        slot = self.slots[self._known(model)]
        served = slot.current
        if slot.journal is None:
            raise UnableModelError("this service takes no judgments: start it with a folder for them")
        if served is None or not learns(served.base):
            raise UnableModelError(f"model {slot.name!r} does not learn without fitting again")
        entries = entries_of(served.ranker, served.version, some)
        slot.journal.append([entry.dump() for entry in entries])

    # --- how ------------------------------------------------------------------------------------------------------

    def _known(self, model: str | None) -> str:
        if model is None:
            return self.default
        if model not in self.slots:
            raise UnknownModelError(_UNKNOWN)
        return model

    def _watch(self) -> None:
        while not self._stop.wait(self.settings.watch):
            for look in self._watched:
                try:
                    look()
                except Exception as error:  # the next look may succeed; nothing may end the watch
                    self._told("watch", error)

    def _refresh(self) -> None:
        for slot in self.slots.values():
            for look in (slot.refresh, slot.replay):
                try:
                    look()
                except Exception as error:  # of one model; the others are looked at
                    self._told("watch", error)

    def _told(self, where: str, error: Exception) -> None:
        if not isinstance(error, RefusedModelError):  # those are told and remembered by the slot
            self.observer.error(where, error)


def _unknown(candidates: Candidates) -> Ranking:
    # Its name is the caller's own, and goes into no answer and no metric.
    return Ranking(candidates.ids, fallback=Fallback.NO_MODEL, detail=_UNKNOWN)


def _interleaved(first: Ranking, second: Ranking, models: tuple[str, str], seed: str) -> Ranking:
    for ranking in (first, second):
        if ranking.fallback is not None:
            return ranking
    ids, teams = team_draft(first.ids, second.ids, seed)
    novelty = max((r.novelty for r in (first, second) if r.novelty is not None), default=None)
    return Ranking(ids, model="+".join(models), novelty=novelty, teams=[models[team] for team in teams])
