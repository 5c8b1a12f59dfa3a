"""The ranking service without a transport. Every query gets a result."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kinrank.errors import ParameterError, RejectedModelError, UnknownModelError
from kinrank.serve._events.log import EventLog
from kinrank.serve._insight import explanation_of, weights_of
from kinrank.serve._judgments import checkpoint_folder, open_store
from kinrank.serve._learning import JudgmentLearner, KeptCopy
from kinrank.serve._models import ModelSlot
from kinrank.serve._ranking import Job
from kinrank.serve._reranking import Reranker
from kinrank.serve._served_model import ServedModel
from kinrank.serve._sources import Checkpoints, WorkFolder, open_source
from kinrank.serve._workers import Workers
from kinrank.serve.messages import (
    CandidateSet,
    Fallback,
    JudgedQuery,
    Observer,
    QueryExplanation,
    QueryWeights,
    Ranking,
)
from kinrank.serve.settings import Settings

if TYPE_CHECKING:
    from kinrank.engines import FeatureSet


ENGINE = "engine"
"""Stands for the engine's own order where a model may be named, unless a model has this name."""
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")


_NO_OBSERVER = Observer()


class Service:
    """Ranks with models that are watched, replaced and updated while it runs.

    Parameters
    ----------
    models
        Model folder, or address of a store of its versions, by name. The first is the default. None are needed with a
        `memory`.
    settings
        Deadlines and limits.
    observer
        Receives everything worth counting.
    judgments
        Where new judgments are stored, ``sqlite:///PATH`` or ``postgresql://...``; see
        `kinrank.serve._judgments.open_store`. Without it, judgments are not accepted.
    checkpoints
        Folder for models with the judgments they have learned, so that a restart is quick, and for a copy of the last
        judgments, by which a process ranks that starts while the database is away. By default next to a
        SQLite file; with PostgreSQL, next to the first model folder, or temporary if that is not on this machine.
    cache
        Folder for copies of models from stores, which the processes of a machine can share. By default a temporary
        folder.
    memory
        The file of a `kinrank.Memory`, by which documents of any retriever are reordered.
    client_secret
        Mixed into the hashes of clients, so that the database alone does not tell who is in it.
    search
        Features of the attached engine, if there is one. Models that cannot rank what it finds are refused.
    watch
        Further functions to call every `Settings.watch_interval` seconds.

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
        memory: str | os.PathLike[str] | None = None,
        client_secret: bytes = b"",
        search: FeatureSet | None = None,
        watch: Iterable[Callable[[], None]] = (),
    ) -> None:
        if not models and memory is None:
            raise ParameterError("a service needs at least one model or a memory: pass a name and a folder, or memory=")
        if not models and judgments is not None:
            raise ParameterError("judgments are for a model: pass one, or leave judgments out")
        self.settings = settings or Settings()
        self.observer = observer
        self._store = None if judgments is None else open_store(judgments)
        clients, days = self.settings.min_clients, self.settings.choice_days
        self.events: EventLog | None = None
        if judgments is not None:
            self.events = EventLog(judgments, min_clients=clients, days=days, secret=client_secret)
        folder = checkpoints or (judgments and checkpoint_folder(judgments, next(iter(models.values()))))
        kept = KeptCopy(folder, judgments, partial(observer.error, "kept"))
        self.reranker = None if memory is None else Reranker(memory, observer)
        self._copies = WorkFolder(cache)

        learned = Checkpoints(folder)
        self.slots: dict[str, ModelSlot] = {}
        for name, address in models.items():
            if not _NAME.match(name):
                raise ParameterError(f"a model name consists of up to 64 letters, digits, '-' and '_', got {name!r}")
            self.slots[name] = ModelSlot(
                name,
                open_source(name, address, self._copies),
                settings=self.settings,
                observer=observer,
                learner=None if self._store is None else JudgmentLearner(name, self._store, observer, learned, kept),
                feed=None if self.events is None else self.events.feed(name, observer),
                search=search,
            )
        self.default = next(iter(self.slots), "none")
        self._unknown_model = f"unknown model name; this service has: {', '.join(self.slots)}"
        self.expected: Callable[[str], int] = lambda _: 0
        """Returns how many rankings by a model the transport is about to submit or waits for; see `Settings.linger`."""
        self.workers = Workers(
            self.slots,
            settings=self.settings,
            observer=observer,
            expected=lambda name: self.expected(name),
            watch=watch,
            events=self.events,
        )

    # --- lifecycle ------------------------------------------------------------------------------------------------

    def start(self, *, strict: bool = True) -> None:
        """Load the models and start to watch them. Meanwhile queries are answered in the engine's order.

        If not `strict`, wait for a model that cannot be loaded, instead of raising.
        """
        self.workers.start(strict=strict)
        if self.reranker is not None:
            self.reranker.start()

    def close(self) -> None:
        """Finish the work in progress and stop the threads."""
        self.workers.close()
        self._copies.close()
        if self._store is not None:
            self._store.close()
        if self.events is not None:
            self.events.close()
        if self.reranker is not None:
            self.reranker.close()

    def __enter__(self) -> Service:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def ready(self) -> bool:
        """Whether every model is loaded, and the memory and, if the settings ask for that, the database were read."""
        return all(slot.current is not None for slot in self.slots.values()) and not (
            self.waits_for_database or self.waits_for_memory
        )

    @property
    def waits_for_memory(self) -> bool:
        """Whether there is a memory that was not read yet."""
        return self.reranker is not None and not self.reranker.ready

    def feature_names(self) -> set[str]:
        """Return the features of all models in use; empty if none is loaded."""
        models = [slot.current for slot in self.slots.values() if slot.current is not None]
        return {name for model in models for name in model.ranker.feature_names_}

    @property
    def waits_for_database(self) -> bool:
        """Whether judgments are needed to be ready, and were never read; see `Settings.need_database`."""
        learners = [slot.learner for slot in self.slots.values() if slot.learner is not None]
        return self.settings.need_database and not all(learner.known for learner in learners)

    @property
    def waiting(self) -> dict[str, int]:
        """How many queries wait for each model."""
        return {name: len(batcher) for name, batcher in self.workers.batchers.items()}

    # --- ranking --------------------------------------------------------------------------------------------------

    def submit(
        self,
        candidates: CandidateSet,
        model: str | None,
        deliver: Callable[[Ranking], None],
        *,
        expires: float | None = None,
    ) -> None:
        """Rank candidates in the model's thread, which then calls `deliver`; "engine" is the order in which they are.

        A caller that reaches the deadline uses `late` instead and ignores a later delivery. `expires` is the end of
        the deadline by `time.perf_counter`, if the deadline started before this call.
        """
        name = self.default if model is None else model
        if name == ENGINE and name not in self.slots:
            deliver(Ranking(candidates.ids, model=ENGINE))
            return
        if name not in self.slots:
            # Leave the name out of the result and the metrics: the caller chose it.
            deliver(Ranking(candidates.ids, fallback=Fallback.NO_MODEL, detail=self._unknown_model))
            return
        now = time.perf_counter()
        job = Job(candidates, now, now + self.settings.deadline if expires is None else expires, deliver)
        ranker, batcher = self.workers.rankers[name], self.workers.batchers.get(name)
        if batcher is None:
            deliver(ranker.in_engine_order(candidates, Fallback.NO_MODEL, "the service is starting"))
        elif not batcher.submit(job):
            deliver(ranker.refusal(candidates))

    def is_overloaded(self, model: str | None) -> bool:
        """Return whether a further query would only wait until its deadline."""
        batcher = self.workers.batchers.get(self.default if model is None else model)
        return batcher is not None and batcher.is_full(self.settings.deadline)

    def late(self, candidates: CandidateSet, model: str | None) -> Ranking:
        """Return the result for a query whose deadline has passed."""
        detail = f"not ranked within {self.settings.deadline * 1000:g} ms"
        return Ranking(candidates.ids, model=self.name_of(model), fallback=Fallback.LATE, detail=detail)

    def name_of(self, model: str | None) -> str:
        """Return a model's name for results and metrics: the default for None and for names that callers make up."""
        return model if model is not None and model in self.slots else self.default

    def existing(self, model: str | None) -> str:
        """Return the name of a model; the default for None. Raise `UnknownModelError` if there is no such model."""
        return self._slot(model).name

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

        Raise `UnsupportedByModelError` if the learner of the model is not linear.
        """
        name = self.default if model is None else model
        if name not in self.slots:
            return QueryWeights(fallback=Fallback.NO_MODEL, detail=self._unknown_model)
        served = self.slots[name].current
        if served is None:
            return QueryWeights(model=name, fallback=Fallback.NO_MODEL, detail="no model is loaded")
        return weights_of(served, name, candidates, self.settings, self.observer)

    def explain(self, candidates: CandidateSet, *, model: str | None = None, limit: int = 10) -> QueryExplanation:
        """Return the judged queries that the ranking is based on, and the weights.

        Raises
        ------
        UnknownModelError, ModelNotLoadedError
            There is no such model, or it is not loaded yet.
        UnsupportedByModelError
            The model cannot explain.
        DataError, EncoderError
            The model cannot rank these candidates.
        """
        return explanation_of(self._slot(model).loaded(), candidates, limit, self.observer)

    # --- models and judgments -------------------------------------------------------------------------------------

    def reload(self, model: str | None = None) -> ServedModel:
        """Load a model now, whether or not its folder or its version has changed.

        Raise `RejectedModelError` if the folder is missing or its model cannot be used; the current model
        stays.
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
        self.workers.learn_soon()
        return revision

    def withdraw(
        self, *, qid: str | None = None, source: str | None = None, model: str | None = None
    ) -> tuple[int, int]:
        """Withdraw the judgments of a query, of a source, or of a query by a source; all replicas forget them.

        Return the number of queries and sources whose judgments were withdrawn, and the revision without them.
        """
        withdrawn = self._slot(model).learning()[1].withdraw(qid, source)
        self.workers.learn_soon()
        return withdrawn

    def check_learned(self, revision: int, *, model: str | None = None) -> None:
        """Raise `StaleReplicaError` unless this process ranks with the judgments up to a revision."""
        self._slot(model).check_learned(revision)

    def _slot(self, model: str | None) -> ModelSlot:
        name = self.default if model is None else model
        if name not in self.slots:
            raise UnknownModelError(self._unknown_model)
        return self.slots[name]
