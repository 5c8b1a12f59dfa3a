"""Queries with few impressions: KNN learned from the pooled clicks of similar queries against a click model per query.

The simulated clicks of `clicks_rank` on MSRD's training queries. The documents of each query are ranked by their own
attractiveness, with unseen documents last in the engine's order, and by KNN Online, which pools the clicks of the 400
most similar queries. NDCG@10 with the true grades by the number of impressions of the query, and a paired test.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.clicks_rank import ENGINE, MEASURE, judged_by_clicks, simulated
from benchmarks.common import log_progress, msrd
from kinrank import KnnRanker
from kinrank.clicks.examination import estimate_examination
from kinrank.clicks.judgments import estimate_attractiveness, judgment_table
from kinrank.measure import compare_paired

BINS = (0, 50, 100, 200, 500)


def run() -> dict[str, Any]:
    """Measure both by the number of impressions."""
    train = msrd()["train"]
    assert train.doc_id is not None
    counts = simulated(train, "position")
    found = estimate_attractiveness(counts, estimate_examination(counts))
    table = judgment_table(counts, found)
    keys = zip(table["qid"].to_pylist(), table["doc_id"].to_pylist(), strict=True)
    own = dict(zip(keys, table["info.attractiveness"].to_pylist(), strict=True))
    shown: dict[str, int] = {}
    for qid, number in zip(table["qid"].to_pylist(), table["info.impressions"].to_pylist(), strict=True):
        shown[qid] = shown.get(qid, 0) + number
    rows = zip(train.qid[train.query_of_row].astype(str).tolist(), train.doc_id.astype(str).tolist(), strict=True)
    engine = train.X[:, train.feature_names.index(ENGINE)].astype(np.float64)
    unseen = -1 + 1e-6 * (engine - engine.max())  # below every attractiveness, in the engine's order
    scores = {
        "engine": engine,
        "click model per query": np.array([own.get(key, low) for key, low in zip(rows, unseen.tolist(), strict=True)]),
        "pooled over similar queries": KnnRanker().fit(judged_by_clicks(train, table)).predict(train),
    }
    quality = {name: MEASURE.per_query(values, train.grades, train.offsets) for name, values in scores.items()}
    impressions = np.array([shown.get(str(qid), 0) for qid in train.qid])
    figures: dict[str, Any] = {}
    for low, high in zip(BINS, (*BINS[1:], np.inf), strict=True):
        part = (impressions >= low) & (impressions < high)
        if part.sum() < 2:
            continue
        paired = compare_paired(
            quality["click model per query"][part],
            quality["pooled over similar queries"][part],
            groups=train.query_columns["movie"][part],
        )
        label = f"{low} or more" if np.isinf(high) else f"{low} to {high - 1:.0f}"
        figures[label] = {
            "queries": int(part.sum()),
            **{name: round(float(values[part].mean()), 4) for name, values in quality.items()},
            "p": float(f"{paired.p:.2g}"),
        }
        log_progress(f"{label}: {figures[label]}")
    return figures
