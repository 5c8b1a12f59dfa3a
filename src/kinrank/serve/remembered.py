"""Documents that people chose, or an editor pinned, for a query and that the engine did not find."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from kinrank.arrays import Float32
from kinrank.engines import Engine, Hits
from kinrank.engines.search_options import SearchOptions
from kinrank.errors import EngineTimeoutError, KinrankError
from kinrank.rankers.capabilities import takes_evidence
from kinrank.serve.circuit import CircuitBreaker
from kinrank.serve.messages import CandidateSet, to_query_set
from kinrank.serve.rollouts import SESSION
from kinrank.serve.service import Service


@dataclass(frozen=True, eq=False)
class Found:
    """What there is to rank for a query."""

    hits: Hits
    """Documents in the engine's order, then those that are pinned or remembered."""
    candidates: CandidateSet | None
    """The same documents with their features; None if there are none."""
    remembered: list[str] = field(default_factory=list)
    """The remembered documents that the engine did not find."""
    problem: str | None = None
    """Why remembered documents are missing, if they are."""


class Memory:
    """Adds remembered documents to what an engine has found.

    Parameters
    ----------
    service
        Has the models that remember, and the number of documents that are added at most.
    engine
        Fetches documents by id.
    """

    def __init__(self, service: Service, engine: Engine) -> None:
        self._service = service
        self._engine = engine
        # Apart from searches: they go on if this fails.
        self._breaker = CircuitBreaker("fetching remembered documents")

    def add(
        self,
        found: Found,
        query: str,
        vector: Float32 | None,
        columns: Mapping[str, float],
        *,
        model: str | None,
        options: SearchOptions,
        expires: float,
    ) -> Found:
        """Return what was found, and pinned or remembered documents that match the filter of `options`.

        If the engine does not deliver them before `expires`, by `time.monotonic`, they are left out.
        """
        names = self._engine.feature_names
        # A query without candidates is looked up with a document that does not exist.
        nothing = np.full((1, len(names)), np.nan, dtype=np.float32)
        known = found.candidates or CandidateSet([""], nothing, names, vector, columns, query)
        try:
            pinned = self._service.rules.book.pinned(query, besides=known.ids)
            ids = list(dict.fromkeys([*pinned, *self._recall(known, model)]))
            if not ids:
                return found
            left = expires - time.monotonic()
            if left <= 0:
                raise EngineTimeoutError("the search left no time to fetch remembered documents")
            with self._service.observer.measure("engine"):
                hits, rows = self._breaker.call(
                    lambda: self._engine.fetch(query, ids, vector=vector, options=options, timeout=left)
                )
        except KinrankError as error:
            return replace(found, problem=str(error))
        if not len(hits):
            return found
        added: list[str] = hits.doc_id.tolist()
        if found.candidates is None:
            candidates = replace(known, ids=added, features=rows)
        else:
            candidates = replace(known, ids=known.ids + added, features=np.concatenate([known.features, rows]))
        return Found(_joined(found.hits, hits), candidates, [doc_id for doc_id in added if doc_id not in pinned])

    def _recall(self, candidates: CandidateSet, model: str | None) -> list[str]:
        """Return the ids of documents that the model remembers and that are not among the candidates, best first."""
        service, most = self._service, self._service.settings.remembered
        if not most or (model is not None and model not in service.slots):
            return []
        served = service.rollouts[service.name_of(model)].model_for(candidates, SESSION.get())
        if served is None or not takes_evidence(served.ranker):
            return []
        names = served.ranker.feature_names_
        candidates = served.encoder(candidates, service.observer)
        ids: list[str] = served.ranker.remembered(to_query_set([candidates], [candidates.align(names)], names), most)
        return ids


def _joined(hits: Hits, more: Hits) -> Hits:
    return replace(
        hits,
        doc_id=np.concatenate([hits.doc_id, more.doc_id]),
        score=np.concatenate([hits.score, more.score]),
        fields=[*hits.fields, *more.fields],
    )
