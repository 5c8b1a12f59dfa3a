"""What memory costs: LightGBM on movie queries one by one, alone and after a look into memory, which take turns.

``--known`` is how many judged queries are known. Those of MSRD come first; further ones are two of its texts joined at
random, with the candidates of the first. Medians in milliseconds, on one thread, and how long memory takes to be made.
"""

from __future__ import annotations

import time
from statistics import median

import numpy as np

from benchmarks.common import log_progress
from benchmarks.memory_collections import movies
from kinrank import QuerySet
from kinrank.data.texts import TEXT
from kinrank.memory.columns import QueryMemory
from kinrank.rankers import RANKERS

OPTIONS = {"known": ("12209", "100000", "1000000"), "asked": ("500", "2000")}


def run(known: str, asked: str) -> dict[str, object]:
    """Time both, query by query."""
    collection = movies()
    queries = collection.queries.replace(query_columns={TEXT: collection.queries.query_columns[TEXT]})
    judged, new = queries[collection.fold < 0], queries[collection.fold == 0]
    trees = RANKERS.make("single(learner=lambdamart(n_trees=300))").fit(judged[:2000])
    start = time.perf_counter()
    memory = QueryMemory.of(grown(judged, int(known)))
    made = time.perf_counter() - start
    log_progress(f"{len(memory):,} known queries in {made:.1f} s")
    seconds: dict[str, list[float]] = {"alone": [], "memory": []}
    for query in new[: int(asked)]:
        for name, work in (("alone", trees.predict), ("memory", memory.columns)):
            start = time.perf_counter()
            work(query)
            seconds[name].append(time.perf_counter() - start)
    milliseconds = {name: round(1000 * median(values), 3) for name, values in seconds.items()}
    return {
        "known": len(memory),
        "alone ms": milliseconds["alone"],
        "memory adds ms": milliseconds["memory"],
        "made s": round(made, 1),
    }


def grown(judged: QuerySet, n_queries: int) -> QuerySet:
    """Return queries and further ones, whose texts are two others joined."""
    if n_queries <= len(judged):
        return judged[:n_queries]
    rng = np.random.default_rng(0)
    texts = judged.query_columns[TEXT].astype(np.str_)
    parts, left = [judged], n_queries - len(judged)
    while left > 0:
        some = judged[: min(left, len(judged))]
        joined = np.char.add(np.char.add(texts[: len(some)], " "), rng.permutation(texts)[: len(some)])
        qid = np.char.add(f"{len(parts)} ", some.qid.astype(np.str_))
        parts.append(some.replace(qid=qid, query_columns={TEXT: joined}))
        left -= len(some)
    first = parts[0].replace(qid=parts[0].qid.astype(np.str_), query_columns={TEXT: texts})
    return QuerySet.concat([first, *parts[1:]])
