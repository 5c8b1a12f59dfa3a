"""`kinrank headroom` finds the gain on MSRD and rules one out on MQ2007; seconds of every study.

Five folds each, by movie on MSRD. Beside the verdicts: the gain on those MSRD queries that have no near-duplicate in
training, and the seconds of the whole study.
"""

from __future__ import annotations

import time

from benchmarks.common import judged_text, letor_part, msrd, say
from kinrank import KnnRanker, QuerySet
from kinrank.study.headroom import headroom
from kinrank.study.records import headroom_record


def run() -> dict[str, object]:
    """The record of every collection, and its seconds."""
    movies = QuerySet.concat(list(msrd().values()))
    letor = {name: QuerySet.concat([letor_part(name, part) for part in range(1, 6)]) for name in ("MQ2007", "MQ2008")}
    by_text = KnnRanker(describe="summaries+text", reference="bm25_all")
    studies = {
        "MSRD": (movies, by_text, "movie"),
        "MQ2007": (letor["MQ2007"], KnnRanker(reference=24), None),
        "MQ2008": (letor["MQ2008"], KnnRanker(reference=24), None),
        "mwmbl": (judged_text("mwmbl")[0], None, None),
        "icecat": (judged_text("icecat")[0], None, None),
    }
    headroom(movies[:500], ranker=by_text, leaks="warn")  # compiles
    figures = {}
    for name, (queries, ranker, group) in studies.items():
        start = time.perf_counter()
        found = headroom_record(headroom(queries, ranker=ranker, group=group))
        figures[name] = {"seconds": round(time.perf_counter() - start, 1), "rows": queries.n_rows, **found}
        say(f"{name}: {found['advice']}")
    return figures
