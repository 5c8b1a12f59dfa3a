"""Search through an engine: find candidates, compute their features, rank them."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kinrank.arrays import Float32
from kinrank.engines import Engine
from kinrank.engines.features import Clause
from kinrank.engines.filters import check_filter
from kinrank.errors import DataError, EngineError, FileFormatError, ParameterError
from kinrank.serve.messages import CandidateSet, Fallback, JudgedQuery, QueryExplanation, QueryWeights, Ranking
from kinrank.serve.service import Service


@dataclass(frozen=True, slots=True, eq=False)
class SearchResult:
    """The result of a search.

    Attributes
    ----------
    ranking : Ranking
        All candidates, ranked.
    engine_ids : list of str
        The same documents in the engine's order.
    explanation : QueryExplanation, or None
        Why they are ranked so, if requested and if the model can explain.
    """

    ranking: Ranking
    engine_ids: list[str]
    explanation: QueryExplanation | None = None


@dataclass(frozen=True, slots=True, eq=False)
class EngineRequest:
    """A request to the engine that ranks with a query's weights.

    Attributes
    ----------
    body : dict
        The request body.
    params : dict
        The URL parameters that belong to it.
    """

    body: dict[str, Any]
    params: dict[str, Any]


class Searcher:
    """Searches with an engine and ranks with a service.

    Parameters
    ----------
    service
        Ranks the candidates.
    engine
        Finds candidates and computes their features.
    titles, texts
        Titles of documents and texts of judged queries by id, for display. Those without one are shown by their id.
    """

    def __init__(
        self,
        service: Service,
        engine: Engine,
        *,
        titles: Mapping[str, str] | None = None,
        texts: Mapping[str, str] | None = None,
    ) -> None:
        self.service = service
        self.engine = engine
        self.titles = titles or {}
        self._texts = texts or {}

    def search(
        self,
        query: str,
        *,
        window: int = 100,
        vector: Float32 | None = None,
        columns: Mapping[str, float] | None = None,
        model: str | None = None,
        filter_clause: Clause | None = None,
        explain: bool = False,
    ) -> SearchResult:
        """Search and rank.

        Parameters
        ----------
        query
            Text of the query.
        window
            Number of candidates to rank.
        vector, columns
            Embedding and further numbers of the query; see `CandidateSet`.
        model
            Model to rank with; None means the default.
        filter_clause
            Clause of the engine's query language that documents must match; see `kinrank.engines.filters`.
        explain
            Add an explanation.

        Raises
        ------
        ParameterError
            The filter is not allowed.
        EngineError
            The engine did not return candidates, so there is no order to fall back on.
        """
        if filter_clause is not None:
            check_filter(filter_clause)
        try:
            candidates = self._candidates(query, window, vector, columns, filter_clause)
        except (EngineError, ParameterError) as error:
            # Without features there may still be an order to show. If the engine is down, this raises.
            ids = self._find(query, window, vector, filter_clause)
            # A request that is valid for a search can only lack the vector that a feature compares.
            reason = Fallback.ENGINE_DOWN if isinstance(error, EngineError) else Fallback.NO_VECTOR
            ranking = Ranking(ids, model=model or self.service.default, fallback=reason, detail=str(error))
            self.service.count(ranking)
            return SearchResult(ranking, ids)
        if candidates is None:
            return SearchResult(Ranking([]), [])
        ranking = self.service.rank(candidates, model=model)
        scored = ranking.fallback is None or ranking.fallback is Fallback.NOVEL
        explanation = self.service.explain(candidates, model=model) if explain and scored else None
        return SearchResult(ranking, candidates.ids, None if explanation is None else self._with_texts(explanation))

    def weights(
        self,
        query: str,
        *,
        size: int,
        window: int = 100,
        vector: Float32 | None = None,
        columns: Mapping[str, float] | None = None,
        model: str | None = None,
    ) -> tuple[QueryWeights, EngineRequest | None]:
        """Return linear weights of the query, and the engine request that ranks with them."""
        candidates = self._candidates(query, window, vector, columns)
        if candidates is None:
            detail = "the engine found no candidates for this query"
            return QueryWeights(model=self.service.default, fallback=Fallback.MODEL_ERROR, detail=detail), None
        found = self.service.weights(candidates, model=model)
        # Boosts multiply raw scores, so weights for normalized scores have no such request; see engines.targets.
        if found.weights is None or found.normalization is not None:
            return found, None
        weights = np.array([found.weights.get(name, 0.0) for name in self.engine.feature_names])
        # Name the documents instead of a window: engines count a window per shard.
        body = self.engine.apply_request(query, weights, size=size, vector=vector, doc_ids=candidates.ids)
        return found, EngineRequest(body, dict(self.engine.apply_params))

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
        """Return a judged query as `kinrank.engines.logger.FeatureLogger` logs it: what a search would rank.

        Parameters
        ----------
        qid, query
            Id and text of the query.
        grades
            Grades by document. Other candidates have grade 0.
        window, vector, columns
            As in `search`.

        Raises
        ------
        DataError
            None of the judged documents is among the candidates.
        """
        candidates = self._candidates(query, window, vector, columns)
        if candidates is None or not grades.keys() & set(candidates.ids):
            raise DataError(
                f"query {qid!r}: none of its {len(grades)} judged documents is among the engine's first {window} hits"
            )
        return JudgedQuery(qid, candidates, [float(grades.get(doc_id, 0.0)) for doc_id in candidates.ids])

    def close(self) -> None:
        """Close the connections to the engine."""
        self.engine.close()

    def _candidates(
        self,
        query: str,
        window: int,
        vector: Float32 | None,
        columns: Mapping[str, float] | None,
        filter_clause: Clause | None = None,
    ) -> CandidateSet | None:
        """Find candidates with their features, in one request if the engine can; None if there are none."""
        start = time.perf_counter()
        seconds = self.service.settings.engine_seconds
        hits, rows = self.engine.search_features(
            query, size=window, vector=vector, filter_clause=filter_clause, timeout=seconds
        )
        self.service.observer.stage("engine", time.perf_counter() - start)
        if not len(hits):
            return None
        return CandidateSet(hits.doc_id.tolist(), rows, self.engine.feature_names, vector, columns or {}, query)

    def _find(self, query: str, window: int, vector: Float32 | None, filter_clause: Clause | None) -> list[str]:
        """Find candidates without features."""
        start = time.perf_counter()
        seconds = self.service.settings.engine_seconds
        hits = self.engine.search(query, size=window, vector=vector, filter_clause=filter_clause, timeout=seconds)
        self.service.observer.stage("engine", time.perf_counter() - start)
        ids: list[str] = hits.doc_id.tolist()
        return ids

    def _with_texts(self, explanation: QueryExplanation) -> QueryExplanation:
        named = [replace(neighbor, text=self._texts.get(neighbor.qid)) for neighbor in explanation.neighbors]
        return replace(explanation, neighbors=named)


def read_labels(path: str | os.PathLike[str] | None) -> dict[str, str]:
    """Read texts by id from a file with lines ``ID<tab>TEXT``."""
    if path is None:
        return {}
    labels = {}
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            name, tab, text = line.rstrip("\n").partition("\t")
            if not tab:
                raise FileFormatError(path, number, "expected an id, a tab and a text")
            labels[name] = text
    return labels
