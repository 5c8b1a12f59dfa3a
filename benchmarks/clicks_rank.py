"""KinRanker learned from debiased clicks on MSRD: its share of the gain that it reaches with the true judgments.

Users click on the lists of MSRD's training queries, shown in the order of BM25 over all fields with some noise: ten
lists per query at the median, with a heavy tail. NDCG@10 on the test queries of KinRanker learned from the true
judgments, from clicks corrected for examination, and from plain click rates; the gain is that over the engine's order.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.common import log_progress, msrd
from kinrank import QuerySet
from kinrank.clicks import ClickCounts, read_clicks
from kinrank.clicks.examination import estimate_examination
from kinrank.clicks.judgments import judgment_table
from kinrank.clicks.posterior import estimate_attractiveness
from kinrank.datasets import simulate_clicks
from kinrank.measure import NDCG, compare_paired
from kinrank.rankers import RANKERS

OPTIONS = {"ranker": ["kin", "single(learner=lambdamart)", "knn"], "user": ["position", "cascade", "trust"]}
ENGINE = "bm25_all"
MEASURE = NDCG @ 10


def simulated(train: QuerySet, user: str) -> ClickCounts:
    """Return the counts of the clicks on the training queries; query texts are the ids of queries."""
    plain = train.replace(query_columns={})
    log = simulate_clicks(plain, train.X[:, train.feature_names.index(ENGINE)], n_lists=10, user=user, seed=1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.parquet"
        pq.write_table(log, file)
        return read_clicks([file])


def judged_by_clicks(train: QuerySet, table: pa.Table) -> QuerySet:
    """Return the rows of the training queries that clicks judge, with their grades and weights."""
    assert train.doc_id is not None
    keys = zip(train.qid[train.query_of_row].astype(str).tolist(), train.doc_id.astype(str).tolist(), strict=True)
    row_of = {key: row for row, key in enumerate(keys)}
    rows = np.array([row_of[key] for key in zip(table["qid"].to_pylist(), table["doc_id"].to_pylist(), strict=True)])
    order = np.argsort(rows)
    rows = rows[order]
    seen = np.bincount(train.query_of_row[rows], minlength=len(train)) > 0
    return QuerySet(
        X=train.X[rows],
        y=table["y"].to_numpy()[order],
        offsets=np.r_[0, np.cumsum(np.bincount(train.query_of_row[rows])[seen])],
        qid=train.qid[seen],
        doc_id=train.doc_id[rows],
        feature_names=train.feature_names,
        query_columns={name: values[seen] for name, values in train.query_columns.items()},
        sample_weight=table["sample_weight"].to_numpy()[order],
    )


def run(ranker: str = "kin", user: str = "position") -> dict[str, Any]:
    """Measure all sources of judgments."""
    parts = msrd()
    train, test = parts["train"], parts["test"]
    counts = simulated(train, user)
    quality = {"engine": MEASURE.per_query(test.X[:, test.feature_names.index(ENGINE)], test.grades, test.offsets)}
    sources = {"true judgments": train}
    for name, model in (("corrected clicks", "swaps"), ("click rates", "none")):
        found = estimate_attractiveness(counts, estimate_examination(counts, model))
        sources[name] = judged_by_clicks(train, judgment_table(counts, found))
    for name, source in sources.items():
        fitted = RANKERS.make(ranker).fit(source)
        quality[name] = MEASURE.per_query(fitted.predict(test), test.grades, test.offsets)
        log_progress(f"{name}: {quality[name].mean():.4f}")
    gain = quality["true judgments"].mean() - quality["engine"].mean()
    difference = compare_paired(quality["click rates"], quality["corrected clicks"], groups=test.query_columns["movie"])
    return {
        "ranker": ranker,
        "user": user,
        "impressions": int(counts.impressions.sum()),
        "NDCG@10": {name: round(float(values.mean()), 4) for name, values in quality.items()},
        "share of the gain": {
            name: round(float((values.mean() - quality["engine"].mean()) / gain), 3) for name, values in quality.items()
        },
        "p, corrected against click rates": float(f"{difference.p:.2g}"),
    }
