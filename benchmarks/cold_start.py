"""A search without judgments and clicks begins to remember: what `Memory` does on day 1, 7 and 30.

Movie searches of MSRD. Every day 150 people search, of 3,000 queries that are asked in proportion to 1 / rank to the
power of .8, ranked at random. BM25 (SQLite FTS5) finds 50 hits; `Memory`, which starts empty and is never trained,
reorders them and adds up to ten. People are those of ``memory_stream``: three of ten say nothing, the others look at
rank r with probability 1 / sqrt(r) and choose what is relevant with probability .8, and ``--wrong`` of the choices are
wrong. Figures are NDCG@10 of the searches of three days around each day (days 1 to 3 for day 1), for BM25 and
memory; also of queries that were asked before, and of new ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import log_progress, msrd
from benchmarks.encoders import msrd_texts
from benchmarks.memory_collections import READERS
from benchmarks.memory_stream import Index, Remembered, Retriever, Stream, play
from kinrank import QuerySet

OPTIONS = {"wrong": "0.2", "daily": "150"}
DAYS, QUERIES, SKEW = 31, 3_000, 0.8
SHOWN = {"day 1": (0, 3), "day 7": (5, 8), "day 30": (28, 31)}


def run(wrong: str, daily: str) -> dict[str, Any]:
    """Return NDCG@10 of both, by day."""
    searches = traffic(int(daily))
    new = np.zeros(len(searches.questions), dtype=np.bool_)
    new[np.unique(searches.questions, return_index=True)[1]] = True
    ndcg = {}
    for name, system in (("BM25", Retriever), ("memory", Remembered)):
        ndcg[name] = np.array(play(searches, system(searches), wrong=float(wrong)).ndcg)
        log_progress(f"{name}: {ndcg[name].mean():.4f}")
    day = np.arange(len(new)) // int(daily)
    figures: dict[str, Any] = {}
    for label, (first, last) in SHOWN.items():
        then = (day >= first) & (day < last)
        for who, some in (("all", then), ("asked before", then & ~new), ("new", then & new)):
            means = {name: round(float(values[some].mean()), 4) for name, values in ndcg.items() if some.any()}
            figures[f"{label}, {who}"] = {"searches": int(some.sum()), **means}
    return figures


def traffic(daily: int) -> Stream:
    """Return the searches of all days."""
    rng = np.random.default_rng(0)
    documents = dict(READERS["msrd"]().texts)
    judged, text = QuerySet.concat(list(msrd().values())), msrd_texts()
    known = [judged[int(place) : int(place) + 1] for place in rng.permutation(len(judged))[:QUERIES]]
    weight = np.arange(1, QUERIES + 1) ** -SKEW
    asked = rng.choice(QUERIES, size=DAYS * daily, p=weight / weight.sum())
    index = Index(documents)
    answers: dict[int, tuple[str, dict[str, float], list[tuple[str, float]]]] = {}
    for place in np.unique(asked).tolist():
        query = known[place]
        assert query.doc_id is not None
        words = text[str(query.qid[0])]
        names = query.doc_id[query.grades > 0].astype(np.str_).tolist()
        answers[place] = words, dict.fromkeys(names, 1.0), index.search(words)
    rows = [answers[place] for place in asked.tolist() if answers[place][1]]
    questions, grades, hits = (list(column) for column in zip(*rows, strict=True))
    return Stream(documents, questions, grades, hits)
