"""`kinrank headroom` finds what each part of kinrank gains, with linear models and on top of trees.

Five folds each, by movie on MSRD, and MSRD also on its fixed split by movie; *MSRD-part* is 2,000 training and 1,000
test queries of it with their texts, where the engine ranks by BM25. ``--trees no`` measures linear models
only, in seconds; with trees, MSRD is measured in as many folds as 4,000 test queries take. The result also has the gain
on queries without near-duplicates in training, and the duration of each study.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.common import judged_text, letor_part, log_progress, msrd
from benchmarks.memory_collections import FAMILY, movies
from kinrank import KinRanker, QuerySet
from kinrank.study._records import headroom_record
from kinrank.study.headroom import headroom

STUDIES = ("MSRD", "MSRD-fixed", "MSRD-part", "MQ2007", "MQ2008", "mwmbl", "icecat")
OPTIONS = {"data-set": ("all", *STUDIES), "trees": ("yes", "no")}


def run(data_set: str = "all", trees: str = "yes") -> dict[str, object]:
    """Return the record and the duration of each study."""
    figures = {}
    for name in STUDIES if data_set == "all" else (data_set,):
        queries, test, ranker, group = study(name)
        start = time.perf_counter()
        engine = "bm25_all" if "bm25_all" in queries.feature_names else None
        found = headroom_record(
            headroom(queries, test, ranker=ranker, group=group, trees=trees == "yes", engine=engine)
        )
        rows = queries.n_rows + (0 if test is None else test.n_rows)
        figures[name] = {"seconds": round(time.perf_counter() - start, 1), "rows": rows, **found}
        log_progress(f"{name}: {found['text']}")
    return figures


def study(name: str) -> tuple[QuerySet, QuerySet | None, KinRanker, str | None]:
    """Return the judged queries, the test queries if they are separate, the ranker and the group column."""
    if name == "MSRD-part":
        collection, rng = movies(), np.random.default_rng(0)
        chosen = [
            rng.choice(np.flatnonzero(collection.fold == fold), n, replace=False) for fold, n in ((-1, 2000), (0, 1000))
        ]
        train, test = (collection.queries[np.unique(places)] for places in chosen)
        return train, test, KinRanker(), FAMILY
    if name.startswith("MSRD"):
        parts = msrd()
        by_text = KinRanker(describe="summaries+text", reference="bm25_all")
        if name == "MSRD":
            return QuerySet.concat(list(parts.values())), None, by_text, "movie"
        return parts["train"], parts["test"], by_text, "movie"
    if name.startswith("MQ"):
        return QuerySet.concat([letor_part(name, part) for part in range(1, 6)]), None, KinRanker(reference=24), None
    return judged_text(name)[0], None, KinRanker(), None
