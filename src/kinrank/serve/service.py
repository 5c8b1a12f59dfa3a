"""The ranking service without a transport. Every query gets a result."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from kinrank.errors import ParameterError, RejectedModelError, UnknownModelError
from kinrank.serve.batches import Batcher
from kinrank.serve.checkpoints import Checkpoints
from kinrank.serve.insight import StoredExample, explanation_of, stored_examples, weights_of
from kinrank.serve.interleave import team_draft
from kinrank.serve.judgment_store import checkpoint_folder, open_store
from kinrank.serve.learning import JudgmentLearner
from kinrank.serve.messages import CandidateSet, Fallback, JudgedQuery, QueryExplanation, QueryWeights, Ranking
from kinrank.serve.models import ModelSlot
from kinrank.serve.observer import Observer
from kinrank.serve.ranking import BatchRanker
from kinrank.serve.rollouts import SESSION, Rollout
from kinrank.serve.schedule import Job, Schedule
from kinrank.serve.selftest import SearchInputs
from kinrank.serve.served_model import ServedModel
from kinrank.serve.settings import Settings
from kinrank.serve.shadow import Shadow
from kinrank.serve.sources import ModelCache, ModelSource, open_sources
from kinrank.store.versions import CURRENT

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
_NO_OBSERVER = Observer()


class Service:
    """Ranks with models that are watched, replaced and updated while it runs.

    Parameters
    ----------
    models
        Model folder, or address of a store of its versions, by name. The first is the default.
    settings
        Deadlines and limits.
    observer
        Receives everything worth counting.
    judgments
        Where new judgments are stored, ``sqlite:///PATH`` or ``postgresql://...``; see
        `kinrank.serve.judgment_store.open_store`. Without it, judgments are not accepted.
    checkpoints
        Folder for models with the judgments they have learned, so that a restart is quick. By default next to a SQLite
        file; with PostgreSQL, a temporary folder.
    cache
        Folder for copies of models from stores, which the processes of a machine can share. By default a temporary
        folder.
    search
        What searches pass to the models, if an engine is attached. Models that cannot rank it are refused.
    watch
        Further functions to call every `Settings.watch_interval` seconds.
    expected
        Returns how many rankings by a model the transport is about to submit or waits for; see `Settings.linger`.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from kinrank import KnnRanker
    >>> from kinrank.datasets import make_two_camps
    >>> camps = make_two_camps(40)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     KnnRanker(5).fit(camps).save(folder, examples=camps[:3])
    ...     with Service({"camps": folder}, settings=Settings(deadline=1.0)) as service:
    ...         service.rank(CandidateSet(["a", "b"], np.float32([[0.1, 1.0], [0.9, 1.0]]))).ids
    ['b', 'a']
    """

    def __init__(
        self,
        models: Mapping[str, str | os.PathLike[str]],
        *,
        settings: Settings | None = None,
        observer: Observer = _NO_OBSERVER,
        judgments: str | None = None,
        checkpoints: str | None = None,
        cache: str | None = None,
        search: SearchInputs | None = None,
        watch: Iterable[Callable[[], None]] = (),
        expected: Callable[[str], int] = lambda _: 0,
    ) -> None:
        if not models:
            raise ParameterError("a service needs at least one model: pass a name and a folder")
        for name in models:
            if not _NAME.match(name):
                raise ParameterError(f"a model name consists of up to 64 letters, digits, '-' and '_', got {name!r}")
        self.settings = settings or Settings()
        self.observer = observer
        self._store = None if judgments is None else open_store(judgments)
        kept = checkpoints or (judgments and checkpoint_folder(judgments))
        self._copies = ModelCache(cache)

        def make_slot(name: str, role: str, source: ModelSource) -> ModelSlot:
            # A checkpoint replaces those of other versions, so each role has its own folder.
            folder = Checkpoints(os.path.join(kept, role) if kept and role != CURRENT else kept)
            return ModelSlot(
                name if role == CURRENT else f"{name}:{role}",
                source,
                deadline=self.settings.deadline,
                observer=observer,
                learner=None if self._store is None else JudgmentLearner(name, self._store, observer, folder),
                search=search,
                mapped=self.settings.map_models,
            )

        self.rollouts = {
            name: Rollout(
                {
                    role: make_slot(name, role, source)
                    for role, source in open_sources(name, address, self._copies).items()
                }
            )
            for name, address in models.items()
        }
        self.slots = {name: rollout.current for name, rollout in self.rollouts.items()}
        self.default = next(iter(self.slots))
        self._rankers = {
            name: BatchRanker(rollout, max_novelty=self.settings.max_novelty, observer=observer)
            for name, rollout in self.rollouts.items()
        }
        self.expected = expected
        self._unknown_model = f"unknown model name; this service has: {', '.join(self.slots)}"
        self._batchers: dict[str, Batcher] = {}
        self._shadows: list[Shadow] = []
        self._watched = [self._refresh, *watch]
        self._stop = threading.Event()
        self._news = threading.Event()
        self._threads: list[threading.Thread] = []

    # --- lifecycle ------------------------------------------------------------------------------------------------

    def start(self, *, strict: bool = True) -> None:
        """Load the models and start to watch them. Meanwhile queries are answered in the engine's order.

        Parameters
        ----------
        strict
            Raise if a model cannot be loaded. Otherwise wait for it, and answer its queries in the engine's order
            until it is there.
        """
        self._batchers = {
            name: Batcher(
                ranker,
                on_batch=partial(self.observer.batch, name),
                on_drop=ranker.drop,
                on_error=lambda error: self.observer.error("rank", error),
                schedule=Schedule(backlog=self.settings.backlog, batch_size=self.settings.batch_size),
                batch_size=self.settings.batch_size,
                linger=self.settings.linger,
                expected=lambda name=name: self.expected(name),  # type: ignore[misc]
                name=f"rank-{name}",
            )
            for name, ranker in self._rankers.items()
        }
        for name, rollout in self.rollouts.items():
            if rollout.shadow is not None:
                shadow = Shadow(name, rollout.shadow, self.observer, self._batchers[name].is_busy)
                self._rankers[name].on_ranked = shadow.offer
                self._shadows.append(shadow)
        for slot in self.slots.values():
            try:
                if not slot.refresh():
                    self.observer.model(slot.name, None, "missing", slot.source.missing)
                    raise RejectedModelError(slot.source.missing)
            except Exception as error:
                if strict:
                    raise
                self._report("start", error)
        # Canaries too, so that sessions meet the same model after a restart.
        self._check_slots(
            ModelSlot.refresh, [each.canary for each in self.rollouts.values() if each.canary is not None]
        )
        # A database or a store that does not respond must not hold up the watch over models and keys.
        loops: dict[str, Callable[[], None]] = {"watch": self._watch}
        if self._store is not None:
            loops["learn"] = self._learn
        for name, rollout in self.rollouts.items():
            if rollout.current.source.is_remote:
                loops[f"poll-{name}"] = partial(self._poll, rollout)
        self._threads = [threading.Thread(target=loop, name=name, daemon=True) for name, loop in loops.items()]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Finish the work in progress and stop the threads."""
        self._stop.set()
        self._news.set()
        for thread in self._threads:
            thread.join(timeout=5.0)
        for batcher in self._batchers.values():
            batcher.close()
        for shadow in self._shadows:
            shadow.close()
        self._copies.close()
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ready(self) -> bool:
        """Whether every model is loaded."""
        return all(slot.current is not None for slot in self.slots.values())

    @property
    def waiting(self) -> dict[str, int]:
        """How many queries wait for each model."""
        return {name: len(batcher) for name, batcher in self._batchers.items()}

    # --- ranking --------------------------------------------------------------------------------------------------

    def submit(
        self,
        candidates: CandidateSet,
        model: str | None,
        deliver: Callable[[Ranking], None],
        *,
        expires: float | None = None,
    ) -> None:
        """Rank candidates in the model's thread, which then calls `deliver`.

        A caller that reaches the deadline uses `late` instead and ignores a later delivery. `expires` is the end of
        the deadline by `time.perf_counter`, if the deadline started before this call.
        """
        name = self.default if model is None else model
        if name not in self.slots:
            # Leave the name out of the result and the metrics: the caller chose it.
            deliver(Ranking(candidates.ids, fallback=Fallback.NO_MODEL, detail=self._unknown_model))
            return
        now = time.perf_counter()
        job = Job(candidates, now, now + self.settings.deadline if expires is None else expires, deliver)
        if name not in self._batchers:
            deliver(self._rankers[name].in_engine_order(candidates, Fallback.NO_MODEL, "the service is starting"))
        elif not self._batchers[name].submit(job):
            deliver(self._rankers[name].refusal(candidates))

    def is_overloaded(self, model: str | None) -> bool:
        """Return whether a further query would only wait until its deadline."""
        batcher = self._batchers.get(self.default if model is None else model)
        return batcher is not None and batcher.is_full(self.settings.deadline)

    def submit_interleaved(
        self,
        candidates: CandidateSet,
        models: tuple[str, str],
        seed: str,
        deliver: Callable[[Ranking], None],
        *,
        expires: float | None = None,
    ) -> None:
        """Rank with two models and interleave their rankings. If one falls back, so does the result."""
        rankings: dict[int, Ranking] = {}
        lock = threading.Lock()

        def collect(team: int, ranking: Ranking) -> None:
            with lock:
                rankings[team] = ranking
                complete = len(rankings) == 2
            if complete:
                deliver(_interleave(rankings[0], rankings[1], models, seed))

        for team, model in enumerate(models):
            self.submit(candidates, model, partial(collect, team), expires=expires)

    def late(self, candidates: CandidateSet, model: str | None) -> Ranking:
        """Return the result for a query whose deadline has passed."""
        detail = f"not ranked within {self.settings.deadline * 1000:g} ms"
        return Ranking(candidates.ids, model=self.name_of(model), fallback=Fallback.LATE, detail=detail)

    def name_of(self, model: str | None) -> str:
        """Return a model's name for results and metrics: the default for None and for names that callers make up."""
        return model if model is not None and model in self.slots else self.default

    def rank(self, candidates: CandidateSet, *, model: str | None = None) -> Ranking:
        """Rank candidates, waiting no longer than the deadline."""
        done = threading.Event()
        delivered: list[Ranking] = []

        def deliver(ranking: Ranking) -> None:
            delivered.append(ranking)
            done.set()

        self.submit(candidates, model, deliver)
        ranking = delivered[0] if done.wait(self.settings.deadline) else self.late(candidates, model)
        self.count(ranking)
        return ranking

    def count(self, result: Ranking | QueryWeights) -> None:
        """Report a result to the observer. Callers of `submit` do this when they use the result."""
        if result.fallback is not None:
            self.observer.fallback(result.model or "unknown", result.fallback)

    def weights(self, candidates: CandidateSet, *, model: str | None = None) -> QueryWeights:
        """Return linear weights of the query, computed in the calling thread.

        Raises
        ------
        UnsupportedByModelError
            The model has no weights because its learner is not linear.
        """
        name = self.default if model is None else model
        if name not in self.slots:
            return QueryWeights(fallback=Fallback.NO_MODEL, detail=self._unknown_model)
        served = self.rollouts[name].model_for(candidates, SESSION.get())
        if served is None:
            return QueryWeights(model=name, fallback=Fallback.NO_MODEL, detail="no model is loaded")
        return weights_of(served, name, candidates, self.settings.min_fidelity, self.observer)

    def explain(
        self, candidates: CandidateSet, *, model: str | None = None, limit: int = 10
    ) -> QueryExplanation | None:
        """Return the judged queries that the ranking is based on, and the weights; None if the model cannot explain."""
        rollout = self.rollouts.get(self.default if model is None else model)
        served = None if rollout is None else rollout.model_for(candidates, SESSION.get())
        return None if served is None else explanation_of(served, candidates, limit, self.observer)

    def examples(self, model: str | None = None) -> list[StoredExample]:
        """Return the queries stored with a model; empty if there are none, or no model is loaded."""
        slot = self.slots.get(self.default if model is None else model)
        return [] if slot is None or slot.current is None else stored_examples(slot.current)

    # --- models and judgments -------------------------------------------------------------------------------------

    def reload(self, model: str | None = None) -> ServedModel:
        """Load a model now, whether or not its folder or its version has changed.

        Raises
        ------
        RejectedModelError
            The folder is missing or its model cannot be used; the current model stays.
        """
        slot = self._slot(model)
        if not slot.refresh(force=True) or slot.current is None:
            raise RejectedModelError(f"{slot.name}: {slot.source.missing}")
        return slot.current

    def judge(self, queries: Sequence[JudgedQuery], *, model: str | None = None, source: str = "") -> int:
        """Store judged queries durably and return the revision that has them; every replica learns them shortly after.

        A judgment with the query, document and source of a stored one replaces it.

        Raises
        ------
        UnsupportedByModelError
            The service does not accept judgments, or the model cannot learn without refitting.
        DataError
            A judged query does not fit the model; none of them is kept.
        NotStoredError
            The store did not confirm them. Judge them again: that is safe, whether or not it has them.
        """
        served, learner = self._slot(model).learning()
        revision = learner.store(served, queries, source)
        self._news.set()
        return revision

    def withdraw(
        self, *, qid: str | None = None, source: str | None = None, model: str | None = None
    ) -> tuple[int, int]:
        """Withdraw the judgments of a query, of a source, or of a query by a source; all replicas forget them.

        Returns
        -------
        tuple of int
            The number of queries and sources whose judgments were withdrawn, and the revision without them.
        """
        withdrawn = self._slot(model).learning()[1].withdraw(qid, source)
        self._news.set()
        return withdrawn

    def check_learned(self, revision: int, *, model: str | None = None) -> None:
        """Raise `StaleReplicaError` unless this process ranks with the judgments up to a revision."""
        self.rollouts[self._slot(model).name].check_learned(revision)

    def _slot(self, model: str | None) -> ModelSlot:
        name = self.default if model is None else model
        if name not in self.slots:
            raise UnknownModelError(self._unknown_model)
        return self.slots[name]

    def _watch(self) -> None:
        while not self._stop.wait(self.settings.watch_interval):
            for check in self._watched:
                try:
                    check()
                except Exception as error:  # the next check may succeed; nothing may end the watch
                    self._report("watch", error)

    def _learn(self) -> None:
        while not self._stop.is_set():
            self._news.wait(self.settings.watch_interval)
            self._news.clear()
            for rollout in self.rollouts.values():
                self._check_slots(ModelSlot.replay, rollout.slots.values())

    def _poll(self, rollout: Rollout) -> None:
        while True:
            self._check_slots(ModelSlot.refresh, rollout.slots.values())
            if self._stop.wait(self.settings.poll_interval):
                return

    def _refresh(self) -> None:
        self._check_slots(ModelSlot.refresh, [slot for slot in self.slots.values() if not slot.source.is_remote])

    def _check_slots(self, check: Callable[[ModelSlot], object], slots: Iterable[ModelSlot]) -> None:
        for slot in slots:
            try:
                check(slot)
            except Exception as error:  # one model must not keep the others from being checked
                self._report("watch", error)

    def _report(self, where: str, error: Exception) -> None:
        if not isinstance(error, RejectedModelError):  # the slot has reported those
            self.observer.error(where, error)


def _interleave(first: Ranking, second: Ranking, models: tuple[str, str], seed: str) -> Ranking:
    for ranking in (first, second):
        if ranking.fallback is not None:
            return ranking
    ids, teams = team_draft(first.ids, second.ids, seed)
    novelty = max((ranking.novelty for ranking in (first, second) if ranking.novelty is not None), default=None)
    return Ranking(ids, model="+".join(models), novelty=novelty, teams=[models[team] for team in teams])
