"""`kinrank headroom` finds the gain on MSRD and rules one out on MQ2007.

Five folds each, by movie on MSRD, and MSRD also on its fixed split by movie. The result also has the gain on queries
without near-duplicates in training, and the duration of each study.
"""

from __future__ import annotations

import time

from benchmarks.common import judged_text, letor_part, log_progress, msrd
from kinrank import KnnRanker, QuerySet
from kinrank.study.headroom import headroom
from kinrank.study.records import headroom_record


def run() -> dict[str, object]:
    """Return the record and the duration of each study."""
    parts = msrd()
    movies = QuerySet.concat(list(parts.values()))
    letor = {name: QuerySet.concat([letor_part(name, part) for part in range(1, 6)]) for name in ("MQ2007", "MQ2008")}
    by_text = KnnRanker(describe="summaries+text", reference="bm25_all")
    studies = {
        "MSRD": (movies, None, by_text, "movie"),
        "MSRD, fixed split": (parts["train"], parts["test"], by_text, "movie"),
        "MQ2007": (letor["MQ2007"], None, KnnRanker(reference=24), None),
        "MQ2008": (letor["MQ2008"], None, KnnRanker(reference=24), None),
        "mwmbl": (judged_text("mwmbl")[0], None, None, None),
        "icecat": (judged_text("icecat")[0], None, None, None),
    }
    headroom(movies[:500], ranker=by_text, leaks="warn")  # compile first
    figures = {}
    for name, (queries, test, ranker, group) in studies.items():
        start = time.perf_counter()
        found = headroom_record(headroom(queries, test, ranker=ranker, group=group))
        rows = queries.n_rows + (0 if test is None else test.n_rows)
        figures[name] = {"seconds": round(time.perf_counter() - start, 1), "rows": rows, **found}
        log_progress(f"{name}: {found['advice']}")
    return figures
