"""A query through a search engine: its candidates and features, ranked; the engine's order where anything fails."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kinrank.arrays import Float32
from kinrank.engines import Engine
from kinrank.errors import EngineError, FileFormatError, ParameterError
from kinrank.serve.messages import Candidates, Fallback, Ranking, Weights
from kinrank.serve.service import Service


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The answer to a search.

    Attributes
    ----------
    ranking : Ranking
        All candidates, ours.
    engine_ids : list of str
        The same in the engine's order.
    explanation : dict, or None
        Why, where it was asked for and the model can say.
    """

    ranking: Ranking
    engine_ids: list[str]
    explanation: dict[str, Any] | None = None


class Searcher:
    """Searches with an engine and ranks with a service.

    Parameters
    ----------
    service
        What ranks.
    engine
        What finds candidates and computes their features.
    titles, texts
        For people: the titles of documents and the texts of judged queries, by id. What has none is shown by its id.
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
        explain: bool = False,
    ) -> Found:
        """Search and rank.

        Parameters
        ----------
        query
            What the user typed.
        window
            How many candidates to rank.
        vector, columns
            What else is known of the query; see `Candidates`.
        model
            Which model ranks.
        explain
            Also say which judged queries decided, and with which weights.

        Raises
        ------
        EngineError
            Where the engine finds no candidates because it does not answer: there is no order to fall back on.
        """
        # Not `search_features`: whatever becomes of the features, there is an order to show, and a busy engine is not
        # asked for it once more.
        ids = self._ids(query, window, vector)
        if not ids:
            return Found(Ranking([]), [])
        try:
            candidates = self._with_features(query, ids, vector, columns)
        except (EngineError, ParameterError) as error:
            # What is left to be wrong with a request that was good enough for a search: a feature compares vectors.
            reason = Fallback.ENGINE_DOWN if isinstance(error, EngineError) else Fallback.NO_VECTOR
            ranking = Ranking(ids, model=model or self.service.default, fallback=reason, detail=str(error))
            self.service.count(ranking)
            return Found(ranking, ids)
        ranking = self.service.rank(candidates, model=model)
        ranked = ranking.fallback is None or ranking.fallback is Fallback.FAR
        explanation = self.service.explain(candidates, model=model) if explain and ranked else None
        for neighbor in [] if explanation is None else explanation["neighbors"]:
            neighbor["text"] = self._texts.get(neighbor["qid"])
        return Found(ranking, ids, explanation)

    def weights(
        self,
        query: str,
        *,
        size: int,
        window: int = 100,
        vector: Float32 | None = None,
        columns: Mapping[str, float] | None = None,
        model: str | None = None,
    ) -> tuple[Weights, dict[str, Any] | None]:
        """The weights of a query's own model; the body and the parameters of the request that ranks with them."""
        ids = self._ids(query, window, vector)
        if not ids:
            detail = "the engine finds no candidates to learn the query's neighbors by"
            return Weights(model=self.service.default, fallback=Fallback.MODEL_ERROR, detail=detail), None
        found = self.service.weights(self._with_features(query, ids, vector, columns), model=model)
        if found.weights is None:
            return found, None
        known = np.array([found.weights.get(name, 0.0) for name in self.engine.feature_names])
        # These documents, not a window: engines count that per shard.
        body = self.engine.apply_request(query, known, size=size, vector=vector, doc_ids=ids)
        return found, {"request": body, "params": dict(self.engine.apply_params)}

    def close(self) -> None:
        """Give the engine's connections back."""
        self.engine.close()

    def _ids(self, query: str, window: int, vector: Float32 | None) -> list[str]:
        start = time.perf_counter()
        hits = self.engine.search(query, size=window, vector=vector, timeout=self.service.settings.engine_seconds)
        self.service.observer.stage("engine-search", time.perf_counter() - start)
        ids: list[str] = hits.doc_id.tolist()
        return ids

    def _with_features(
        self, query: str, ids: list[str], vector: Float32 | None, columns: Mapping[str, float] | None
    ) -> Candidates:
        start = time.perf_counter()
        rows = self.engine.features(query, ids, vector=vector, timeout=self.service.settings.engine_seconds)
        self.service.observer.stage("engine-features", time.perf_counter() - start)
        return Candidates(ids, rows, self.engine.feature_names, vector, columns or {})


def read_labels(path: str | os.PathLike[str] | None) -> dict[str, str]:
    """Texts by id, from a file of lines ``ID<tab>TEXT``."""
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
