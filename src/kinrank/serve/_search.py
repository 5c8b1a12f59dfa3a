"""Search through an engine: find candidates, compute their features, rank them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import numpy as np

from kinrank.arrays import Float32
from kinrank.engines import Engine, FoundDocuments, Hits
from kinrank.engines._query_dsl import PLAIN, SearchOptions
from kinrank.engines.features import Clause
from kinrank.errors import DataError, EngineError, ForbiddenFieldError, KinrankError, ParameterError
from kinrank.serve._circuit import FAILURES, CircuitBreaker, RetryBudget
from kinrank.serve._served_model import ServedModel
from kinrank.serve.messages import (
    CandidateSet,
    Fallback,
    JudgedQuery,
    QueryExplanation,
    QueryWeights,
    Ranking,
    to_query_set,
)
from kinrank.serve.service import Service


@dataclass(frozen=True)
class SearchPolicy:
    """What searches may read.

    Examples
    --------
    >>> policy = SearchPolicy(["title", "price_*"], {"term": {"public": True}})
    >>> policy.check(SearchOptions(fields=["title", "price_eur"]))
    >>> policy.check(SearchOptions(fields=["*"]))
    Traceback (most recent call last):
    ...
    kinrank.errors.ForbiddenFieldError: the field '*' must not be read with this key: the service permits title, price_*
    """

    fields: Sequence[str] | None = None
    """Fields that callers may return, filter by and aggregate; ``*`` stands for any characters. None permits all.
    Callers with an admin key may read all fields in any case.
    """
    filter_clause: Clause | None = None
    """A filter that all documents must match, whatever a request asks for."""

    def check(self, options: SearchOptions) -> None:
        """Raise `ForbiddenFieldError` if a search reads a field that it must not."""
        if self.fields is None:
            return
        for name in sorted(options.read_fields()):
            if name not in self.fields and ("*" in name or not any(fnmatchcase(name, each) for each in self.fields)):
                permitted = ", ".join(self.fields) or "none; name some with --field"
                raise ForbiddenFieldError(
                    f"the field {name!r} must not be read with this key: the service permits {permitted}"
                )

    def restrict(self, options: SearchOptions) -> SearchOptions:
        """Return the options of a search among the documents that it may find."""
        return options.also_matching(self.filter_clause)


class _Asked(NamedTuple):
    """What a search asks the engine and the service for."""

    text: str
    window: int
    vector: Float32 | None
    columns: Mapping[str, float]
    model: str | None
    options: SearchOptions
    """What documents must match, and what is returned with them, restricted to what is permitted."""


_ALL = SearchPolicy()


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The result of a search."""

    ranking: Ranking
    """All candidates, ranked."""
    hits: Hits
    """The same documents in the engine's order, remembered ones last, with the total, fields and facets."""
    explanation: QueryExplanation | None = None
    """Why they are ranked so, if requested and if the model can explain."""
    remembered: list[str] = field(default_factory=list)
    """The documents that the engine did not find, but people chose for this query."""
    problem: str | None = None
    """Why remembered documents are missing, if they are."""
    kin: str | None = None
    """A known query that this one, for which the engine found nothing, is a spelling of. If there are documents, they
    are those of this kin.
    """

    @property
    def engine_ids(self) -> list[str]:
        """The documents in the engine's order."""
        ids: list[str] = self.hits.doc_id.tolist()
        return ids

    @property
    def fields(self) -> dict[str, Mapping[str, Any]]:
        """The requested fields of each document, by id; empty if none were requested."""
        return dict(zip(self.engine_ids, self.hits.fields, strict=False))


class Searcher:
    """Searches with an engine and ranks with a service."""

    def __init__(self, service: Service, engine: Engine, *, policy: SearchPolicy = _ALL) -> None:
        self.service = service
        self.engine = engine
        self.policy = policy
        # Apart, so that an engine that cannot compute features is still asked for its order, and with one request.
        self._features = CircuitBreaker("computing features")
        self._searches = CircuitBreaker("search")
        self._second_requests = RetryBudget()

    def search(
        self,
        query: str,
        *,
        window: int = 100,
        vector: Float32 | None = None,
        columns: Mapping[str, float] | None = None,
        pinned: Iterable[str] = (),
        model: str | None = None,
        options: SearchOptions = PLAIN,
        explain: bool = False,
    ) -> SearchResult:
        """Search, rank the first `window` hits, and explain the ranking if asked to.

        Raise `ParameterError` if the filter or a facet is not allowed, and `EngineError` if the engine did not
        return candidates, so that there is no order to fall back on.

        `pinned` documents, and those that the engine itself pins, keep their places in the engine's order.

        If the engine finds nothing, the result names a known query that this one is a spelling of and, with
        `Settings.answer_with_kin`, has its documents.
        """
        options.check()
        asked = _Asked(query, window, vector, columns or {}, model, self.policy.restrict(options))
        expires = time.monotonic() + self.service.settings.engine_seconds
        self._second_requests.earn()
        kept = frozenset(pinned)
        result = self._search(asked, expires, kept, explain=explain)
        if result.ranking.ids:
            return result
        kin = self._spelled(query, model)
        # The time of a search is that of two: without half of it, nothing is found as it was.
        left, whole = expires - time.monotonic(), self.service.settings.engine_seconds
        if kin is not None and self.service.settings.answer_with_kin and left > whole / 2:
            with suppress(EngineError, ParameterError):
                if self._second_requests.spend():
                    result = self._search(asked._replace(text=kin), expires, kept, left, explain=explain)
        return replace(result, kin=kin)

    def _model(self, name: str | None) -> ServedModel | None:
        """Return the model of a name, or the default one; None if there is none, or it is not loaded."""
        if name is not None and name not in self.service.slots:
            return None
        return self.service.slots[self.service.name_of(name)].current

    def _spelled(self, query: str, model: str | None) -> str | None:
        """Return the judged query that a query is a spelling of; None if the model knows none."""
        served = self._model(model)
        return None if served is None else served.spellings().nearest(query)

    def _search(
        self, asked: _Asked, expires: float, pinned: frozenset[str], seconds: float | None = None, *, explain: bool
    ) -> SearchResult:
        """Search for a query, and rank what was found."""
        # Known before the search, so that one request can find and fetch.
        remembered, problem = self._remembered(asked)
        model = asked.model
        try:
            found, candidates = self._candidates(asked, remembered, seconds)
        except (EngineError, ParameterError) as error:
            # Without features there may still be an order to show. If the engine is down, this raises.
            hits = self._without_features(error, asked, expires)
            # A request that is valid for a search can only lack the vector that a feature compares.
            reason = Fallback.ENGINE_DOWN if isinstance(error, EngineError) else Fallback.NO_VECTOR
            ids: list[str] = hits.doc_id.tolist()
            ranking = Ranking(ids, model=self.service.name_of(model), fallback=reason, detail=str(error))
            self.service.count(ranking)
            return SearchResult(ranking, hits)
        problem = problem or found.problem
        if candidates is None:
            return SearchResult(Ranking([], model=self.service.name_of(model)), found.hits, problem=problem)
        n_found = found.n_found
        pinned = (pinned | found.hits.pinned).intersection(candidates.ids[:n_found])  # added ones have no place
        candidates = replace(candidates, pinned=pinned)
        ranking = self.service.rank(candidates, model=model)
        scored = ranking.fallback is None or ranking.fallback is Fallback.NOVEL
        explanation = None
        with suppress(KinrankError):  # a model that cannot explain
            explanation = self.service.explain(candidates, model=model) if explain and scored else None
        return SearchResult(ranking, found.hits, explanation, candidates.ids[n_found:], problem)

    def weights(
        self,
        query: str,
        *,
        size: int,
        window: int = 100,
        vector: Float32 | None = None,
        columns: Mapping[str, float] | None = None,
        model: str | None = None,
        options: SearchOptions = PLAIN,
    ) -> QueryWeights:
        """Return linear weights of the query, and the engine request that ranks with them.

        The response to this request has the total, the fields and the facets of a search with these options. If the
        model knows what people chose, it also finds and counts remembered documents, and has boosts.
        """
        options.check()
        options = self.policy.restrict(options)
        asked = _Asked(query, window, vector, columns or {}, model, SearchOptions(options.filter_clause))
        remembered, _ = self._remembered(asked)
        _, candidates = self._candidates(asked, remembered)
        if candidates is None:
            detail = "the engine found no candidates for this query"
            return QueryWeights(model=self.service.name_of(model), fallback=Fallback.MODEL_ERROR, detail=detail)
        found = self.service.weights(candidates, model=model)
        # Boosts multiply raw scores, so weights for normalized scores have no such request; see engines.targets.
        if found.weights is None or found.normalization is not None:
            return found
        weights = np.array([found.weights.get(name, 0.0) for name in self.engine.feature_names])
        # Name the documents instead of a window: engines count a window per shard.
        ids, boosts = candidates.ids, found.boosts
        body = self.engine.apply_request(
            query, weights, size=size, vector=vector, doc_ids=ids, options=options, boosts=boosts
        )
        return replace(found, request=body, params=dict(self.engine.apply_params))

    def judged(
        self,
        qid: str,
        query: str,
        grades: Mapping[str, float],
        *,
        window: int = 100,
        vector: Float32 | None = None,
        columns: Mapping[str, float] | None = None,
    ) -> JudgedQuery:
        """Return a judged query as `kinrank.engines._logger.FeatureLogger` logs it: what a search would rank.

        Other candidates have grade 0. Raise `DataError` if none of the judged documents is among the
        candidates.
        """
        asked = _Asked(query, window, vector, columns or {}, None, self.policy.restrict(PLAIN))
        _, candidates = self._candidates(asked, engine=self.engine.without_own_texts(query))
        if candidates is None or not grades.keys() & set(candidates.ids):
            raise DataError(
                f"query {qid!r}: none of its {len(grades)} judged documents is among the engine's first {window} hits"
            )
        return JudgedQuery(qid, candidates, [float(grades.get(doc_id, 0.0)) for doc_id in candidates.ids])

    def close(self) -> None:
        """Close the connections to the engine."""
        self.engine.close()

    def _candidates(
        self, asked: _Asked, wanted: Sequence[str] = (), seconds: float | None = None, engine: Engine | None = None
    ) -> tuple[FoundDocuments, CandidateSet | None]:
        """Find candidates, add wanted documents, and compute their features; in one request if the engine can."""
        engine = engine or self.engine
        if needed := self.service.feature_names():
            engine = engine.with_features(needed)
        seconds = self.service.settings.engine_seconds if seconds is None else seconds
        with self.service.observer.measure("engine"):
            found = self._features.call(
                lambda: engine.search_adding(
                    asked.text, wanted, size=asked.window, vector=asked.vector, options=asked.options, timeout=seconds
                )
            )
        ids, names = found.hits.doc_id.tolist(), engine.feature_names
        known = asked.vector, asked.columns, asked.text
        return found, CandidateSet(ids, found.features, names, *known) if ids else None

    def _remembered(self, asked: _Asked) -> tuple[list[str], str | None]:
        """Return the documents that the model remembers, best first, at most `Settings.remembered`.

        If the model cannot encode the query, return why.
        """
        most, served = self.service.settings.remembered, self._model(asked.model)
        if not most or served is None or served.choices is None:
            return [], None
        # The engine has not been asked yet: the query is looked up with a document that does not exist.
        names = self.engine.feature_names
        nothing = np.full((1, len(names)), np.nan, dtype=np.float32)
        candidates = CandidateSet([""], nothing, names, asked.vector, asked.columns, asked.text)
        names = served.ranker.feature_names_
        try:
            candidates = served.encoder(candidates, self.service.observer)
            found = served.choices.remembered(to_query_set([candidates], [candidates.align(names)], names), most)
        except KinrankError as error:
            return [], str(error)
        return list(found), None

    def _without_features(self, error: EngineError | ParameterError, asked: _Asked, expires: float) -> Hits:
        """Find candidates alone after `error`, in the time that is left. Raise `error` if that would be too much."""
        left = expires - time.monotonic()
        is_second = isinstance(error, FAILURES) and not self._features.is_open
        if left <= 0 or (is_second and not self._second_requests.spend()):
            raise error
        with self.service.observer.measure("engine"):
            return self._searches.call(
                lambda: self.engine.search(
                    asked.text, size=asked.window, vector=asked.vector, options=asked.options, timeout=left
                )
            )
