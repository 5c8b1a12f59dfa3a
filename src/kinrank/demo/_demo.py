"""The demo without its transport: search, choose, and see how the order moves."""

from __future__ import annotations

import json
import threading
import time
from typing import Any

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.demo._search import (
    MovieSearch,
    data_file,
    load_demo_judgments,
    load_demo_movies,
    order_by,
    reasons_to_move,
    shown_hits,
)
from kinrank.errors import DataError
from kinrank.memory.evidence import Evidence
from kinrank.rankers.base import load
from kinrank.rankers.kin.ranker import KinRanker

LONGEST_QUERY = 200
_NEIGHBORS = 6
_CLOSE = 0.3  # similarity below which a judged query is not shown as kin


class Demo:
    """Searches the bundled movies and ranks the hits in three ways.

    *Engine* is the order of BM25 with hand-tuned boosts, *LightGBM* one tuned model for all queries, *kinrank* a
    `KinRanker`. Both models have learned from the same judged queries. What the user chooses is evidence for the last
    one, and a judgment for queries like it.

    Examples
    --------
    >>> demo = Demo()
    >>> [hit["title"] for hit in demo.search("matrix reloaded")["lists"]["kinrank"][:2]]
    ['The Matrix Reloaded', 'The Matrix Resurrections']
    """

    def __init__(self) -> None:
        self._search = MovieSearch(load_demo_movies())
        ranker = load(data_file("kinrank"))
        assert isinstance(ranker, KinRanker)  # scripts/make_demo.py wrote it
        self._ranker = self._learned = ranker
        self._relevant = {judged.query: frozenset(judged.movies) for judged in load_demo_judgments()}
        self._trees = load(data_file("lightgbm"))
        self._lock = threading.Lock()  # one search at a time: the demo has one user
        self.examples: dict[str, Any] = json.loads(data_file("examples.json").read_text())

    def search(self, text: str) -> dict[str, Any]:
        """Return the hits of a query in the three orders, its kin, and the reasons, as JSON values."""
        with self._lock:
            hits = self._hits(text)
            if hits is None:
                return {"query": text, "lists": {}, "kin": [], "judged": False, "milliseconds": 0.0}
            start = time.perf_counter()
            self._ranker.predict(hits)
            milliseconds = 1000 * (time.perf_counter() - start)
            return {"query": text, **self._rank(hits), "milliseconds": milliseconds}

    def choose(self, text: str, movie: str) -> dict[str, Any]:
        """Count a choice for a query, and return what `search` finds now.

        The user is taken to have looked at every movie down to the chosen one, at the one of rank k with probability
        1/k, as the click logs of simulated users have it.
        """
        with self._lock:
            hits = self._hits(text)
            if hits is None or hits.doc_id is None or movie not in hits.doc_id:
                raise DataError(f"movie {movie!r} is no hit of {text!r}: choose one that the search shows")
            shown = hits.doc_id[order_by(self._ranker.predict(hits))]
            rank = int(np.flatnonzero(shown == movie)[0]) + 1
            looked = Evidence.from_cells([text] * rank, shown[:rank], 1 / np.arange(1, rank + 1), shown[:rank] == movie)
            known = self._ranker.recent_
            self._ranker = self._ranker.with_recent(looked if known is None else known.merged(looked))
            seen = hits.take_rows(np.isin(hits.doc_id, shown[:rank]))
            wanted = np.asarray(seen.doc_id) == movie
            judged = seen.replace(y=wanted.astype(np.float32))
            self._ranker = self._ranker.remembering(judged)
        return self.search(text)

    def forget(self) -> None:
        """Forget all choices."""
        with self._lock:
            self._ranker = self._learned

    def _hits(self, text: str) -> QuerySet | None:
        if len(text) > LONGEST_QUERY:
            raise DataError(f"the query has {len(text)} characters: write at most {LONGEST_QUERY}")
        return self._search.hits(text)

    def _rank(self, hits: QuerySet) -> dict[str, Any]:
        text = hits.qid[0].item()
        explained = self._ranker.explain(hits)[0]
        engine = -np.arange(hits.n_rows, dtype=np.float64)
        movies, relevant = self._search.movies, self._relevant.get(text, frozenset())
        kin = [each for each in self._ranker.nearest_texts(hits, _CLOSE) if each != text]
        return {
            "lists": {
                "engine": shown_hits(hits, engine, movies, relevant),
                "lightgbm": shown_hits(hits, self._trees.predict(hits), movies, relevant),
                "kinrank": shown_hits(
                    hits, -explained.rank.astype(np.float64), movies, relevant, reasons_to_move(explained)
                ),
            },
            "kin": kin[:_NEIGHBORS],
            "judged": bool(relevant),
        }
