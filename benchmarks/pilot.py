"""A pilot as a search engineer would run it: the engine's order, LightGBM, and what is recommended, by traffic.

Half of the queries are judged by people. Simulated users click for four weeks on the lists of all of them, in the
engine's order with some noise. *LightGBM* (LambdaMART) learns from the judgments, *LightGBM from clicks* from corrected
clicks of all queries in the first three weeks. *Recommended* is `KinRanker` with its defaults, the judgments, and the
clicks of these weeks as evidence: ``kinrank clicks log.parquet --evidence evidence``, ``kinrank train judged.parquet
--evidence evidence --model model``. NDCG@10 with the true grades of the queries that were not judged: weighted by the
lists of the fourth week, and by the impressions of the first three. Intervals of the gain are 95% ones, by movie on
MSRD, and by families of near-duplicates on GOV.UK. The engine of MSRD is BM25 over all fields, that of GOV.UK the
cosine of words and of n-grams. ``--queries`` are drawn of each collection.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from benchmarks.choices_traffic import BINS, MEASURE, counted, judged_log, week
from benchmarks.clicks_rank import judged_by_clicks
from benchmarks.common import log_progress
from benchmarks.memory_collections import FAMILY, read
from kinrank import KinRanker, QuerySet
from kinrank.data.texts import TEXT, normalize_text
from kinrank.datasets import simulate_clicks
from kinrank.rankers import RANKERS
from kinrank.study._traffic import weighted_comparison

ENGINES = {"msrd": "bm25_all", "govuk": "text"}
LIGHTGBM = "single(learner=lambdamart)"
FEWEST = 30
"""Queries of a part from which on it is shown."""
OPTIONS = {
    "collection": ["both", *ENGINES],
    "queries": "1200",
    "user": ["position", "cascade", "trust"],
    "model": ["swaps", "trust"],
    "seed": "1",
}


def drawn(collection: str, number: int, seed: int) -> QuerySet:
    """Return some queries with different texts and a relevant candidate; their ids are their texts, as in a log."""
    queries = read(collection).queries
    texts = np.array([normalize_text(text) for text in queries.query_columns[TEXT].tolist()])
    first = np.zeros(len(queries), dtype=np.bool_)
    first[np.unique(texts, return_index=True)[1]] = True
    useful = np.maximum.reduceat(queries.grades, queries.offsets[:-1]) > 0
    places = np.random.default_rng(seed).permutation(np.flatnonzero(first & useful))[:number]
    columns = {**queries.query_columns, TEXT: texts}
    return queries.replace(qid=texts, query_columns=columns)[np.sort(places)]


def measured(collection: str, number: int, user: str, model: str, seed: int) -> dict[str, Any]:
    """Return the figures of a collection."""
    queries = drawn(collection, number, seed)
    engine = queries.X[:, queries.feature_names.index(ENGINES[collection])].astype(np.float64)
    log = simulate_clicks(queries, engine, n_lists=10, user=user, seed=seed)
    early = log.filter(pc.less(log["time"], week(3)))
    clicked, evidence = judged_log(early, model)
    places = {text: place for place, text in enumerate(queries.qid.tolist())}
    firsts = log.filter(pc.and_(pc.greater_equal(log["time"], week(3)), pc.equal(log["rank"], 1)))
    impressions, traffic = counted(early["query"], places), counted(firsts["query"], places)
    is_judged = np.zeros(len(queries), dtype=np.bool_)
    is_judged[np.random.default_rng(seed).permutation(len(queries))[: len(queries) // 2]] = True
    judged, asked = queries[is_judged], queries[~is_judged]
    rankers = {"LightGBM": (LIGHTGBM, judged), "LightGBM from clicks": (LIGHTGBM, judged_by_clicks(queries, clicked))}
    scores = {"engine": engine[np.repeat(~is_judged, queries.sizes)]}
    for name, (spec, known) in rankers.items():
        scores[name] = RANKERS.make(spec).fit(known).predict(asked)
    recommended = KinRanker(evidence=evidence).fit(judged)
    scores["recommended"] = recommended.predict(asked)
    for line in recommended.remarks():
        log_progress(line)
    quality = {name: MEASURE.per_query(values, asked.grades, asked.offsets) for name, values in scores.items()}
    return {
        "queries": len(asked),
        "judged": len(judged),
        "impressions": int(impressions.sum()),
        "lists of the fourth week": int(traffic[~is_judged].sum()),
        "NDCG@10": by_traffic(quality, impressions[~is_judged], traffic[~is_judged], asked.query_columns[FAMILY]),
    }


def by_traffic(
    quality: dict[str, np.ndarray], impressions: np.ndarray, traffic: np.ndarray, family: np.ndarray
) -> dict[str, dict[str, Any]]:
    """Return all orders and the gain of the recommended one over each, weighted by traffic, and by impressions."""
    parts = {"by traffic": traffic.astype(np.float64)}
    for low, high in zip(BINS, (*BINS[1:], np.inf), strict=True):
        label = f"{low} or more" if np.isinf(high) else f"{low} to {high - 1:.0f}"
        parts[label] = ((impressions >= low) & (impressions < high)).astype(np.float64)
    figures: dict[str, dict[str, Any]] = {}
    for label, weight in parts.items():
        used = weight > 0
        if used.sum() < FEWEST:
            continue
        share = weight[used] / weight.sum()
        row: dict[str, Any] = {"queries": int(used.sum())}
        for name, values in quality.items():
            row[name] = round(float(share @ values[used]), 4)
        for name in list(quality)[:-1]:
            gain = weighted_comparison((quality["recommended"] - quality[name])[used], share, family[used])
            row[f"gain over {name}"] = [round(float(each), 4) for each in (gain.mean_difference, *gain.interval)]
        figures[label] = row
        log_progress(f"{label}: {row}")
    return figures


def run(
    collection: str = "both", queries: str = "1200", user: str = "position", model: str = "swaps", seed: str = "1"
) -> dict[str, Any]:
    """Measure both collections, or one."""
    names = list(ENGINES) if collection == "both" else [collection]
    return {
        "user": user,
        "model": model,
        "seed": seed,
        **{name: measured(name, int(queries), user, model, int(seed)) for name in names},
    }
