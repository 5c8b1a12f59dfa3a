"""KinRanker learned from debiased clicks on MSRD: its share of the gain that it reaches with the true judgments.

Users click on the lists of the training queries, shown in the order of BM25 over all fields with some noise: ten
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

from benchmarks.common import judged_text, log_progress, msrd
from kinrank import QuerySet
from kinrank.clicks import ClickCounts, read_clicks
from kinrank.clicks.examination import estimate_examination
from kinrank.clicks.judgments import estimate_attractiveness, judgment_table
from kinrank.datasets import simulate_clicks
from kinrank.measure import NDCG, compare_paired
from kinrank.rankers import RANKERS

OPTIONS = {
    "ranker": ["kin", "single(learner=lambdamart)", "knn"],
    "user": ["position", "cascade", "trust"],
    "collection": ["msrd", "mwmbl"],
    "sources": ["all", "true judgments", "corrected clicks", "click rates"],
}
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
    counts = np.bincount(train.query_of_row[rows], minlength=len(train))
    seen = counts > 0
    return QuerySet(
        X=train.X[rows],
        y=table["y"].to_numpy()[order],
        offsets=np.r_[0, np.cumsum(counts[seen])],
        qid=train.qid[seen],
        doc_id=train.doc_id[rows],
        feature_names=train.feature_names,
        query_columns={name: values[seen] for name, values in train.query_columns.items()},
        sample_weight=table["sample_weight"].to_numpy()[order],
    )


def splits(collection: str) -> list[tuple[QuerySet, QuerySet]]:
    """Return training and test queries: those of MSRD, or two of the five folds of mwmbl as test queries."""
    if collection == "msrd":
        parts = msrd()
        return [(parts["train"], parts["test"])]
    queries, fold = judged_text(collection)
    queries = queries.replace(doc_id=np.arange(queries.n_rows).astype(str))
    return [(queries[fold != test], queries[fold == test]) for test in (1, 2)]


def judgments(train: QuerySet, user: str) -> dict[str, QuerySet]:
    """Return the training queries with judgments of each source."""
    counts = simulated(train, user)
    log_progress(f"{counts.impressions.sum():,} impressions")
    judged = {}
    for name, model in (("corrected clicks", "swaps"), ("click rates", "none")):
        estimate = estimate_attractiveness(counts, estimate_examination(counts, model))
        judged[name] = judged_by_clicks(train, judgment_table(counts, estimate))
    return {"true judgments": train, **judged}


def run(ranker: str = "kin", user: str = "position", collection: str = "msrd", sources: str = "all") -> dict[str, Any]:
    """Measure all sources of judgments, or one."""
    measured: dict[str, list[np.ndarray]] = {}
    for train, test in splits(collection):
        scores = {"engine": test.X[:, test.feature_names.index(ENGINE)]}
        for name, source in judgments(train, user).items():
            if sources in ("all", name):
                scores[name] = RANKERS.make(ranker).fit(source).predict(test)
        for name, values in scores.items():
            measured.setdefault(name, []).append(MEASURE.per_query(values, test.grades, test.offsets))
            log_progress(f"{name}: {np.nanmean(measured[name][-1]):.4f}")
    quality = {name: np.concatenate(values) for name, values in measured.items()}
    mean = {name: float(np.nanmean(values)) for name, values in quality.items()}
    figures = {
        "ranker": ranker,
        "user": user,
        "collection": collection,
        "NDCG@10": {name: round(value, 4) for name, value in mean.items()},
    }
    if sources == "all":
        gain = mean["true judgments"] - mean["engine"]
        movie = splits(collection)[0][1].query_columns["movie"] if collection == "msrd" else None
        judged = np.isfinite(quality["engine"])
        by_rates, corrected = (quality[name][judged] for name in ("click rates", "corrected clicks"))
        difference = compare_paired(by_rates, corrected, groups=None if movie is None else movie[judged])
        figures["share of the gain"] = {name: round((value - mean["engine"]) / gain, 3) for name, value in mean.items()}
        figures["p, corrected against click rates"] = float(f"{difference.p:.2g}")
    return figures
