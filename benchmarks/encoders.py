"""Query texts without vectors to bring: KNN and KinRanker with no text, with n-grams, and with MiniLM vectors.

NDCG@10 over the test queries of five folds (MSRD by movie, mwmbl and icecat as given), paired t-tests against no text
(MSRD by movie).
KNN has the settings that KinRanker uses for its local model, with k = 400 (100 for mwmbl, 50 for icecat).
"microseconds" is the median time to encode one query, "megabytes" the n-gram encoder in a model folder.
"""

from __future__ import annotations

import csv
import gzip
import os
import statistics
import time

import numpy as np

from benchmarks.common import collections, judged_text, log_progress, movie_of, msrd
from kinrank import KinRanker, KnnRanker, QuerySet, fold_queries
from kinrank.kin import Describer
from kinrank.kin.encoders.ngrams import NgramEncoder
from kinrank.measure import compare_paired
from kinrank.rankers import Ranker
from kinrank.rankers._local.choose import MEASURE

COLLECTIONS = ("msrd", "mwmbl", "icecat")
OPTIONS = {"only": ("all", *COLLECTIONS), "ranker": ("all", "knn", "kin")}
NEIGHBORS = {"msrd": 400, "mwmbl": 100, "icecat": 50}
TEXTS = ("no text", "n-grams", "MiniLM")


def run(only: str = "all", ranker: str = "all") -> dict[str, object]:
    """Measure every ranker with every kind of text on every collection."""
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    chosen = COLLECTIONS if only == "all" else (only,)
    rankers = ("knn", "kin") if ranker == "all" else (ranker,)
    return {name: {kind: compare(name, kind) for kind in rankers} | encoder_cost(name) for name in chosen}


def compare(name: str, kind: str) -> dict[str, object]:
    """Return the quality with each kind of text, and the gain over no text."""
    quality: dict[str, list[np.ndarray]] = {text: [] for text in TEXTS}
    parts = folds(name)
    groups = movie_of(np.concatenate([test.qid for _, test in parts])) if name == "msrd" else None
    for fold, (train, test) in enumerate(parts):
        for text in TEXTS:
            fitted = make(name, kind).fit(with_text(train, text))
            scores = fitted.predict(with_text(test, text))
            quality[text].append(MEASURE.per_query(scores, test.grades, test.offsets))
            log_progress(f"{name} {kind} fold {fold} {text}: {np.nanmean(quality[text][-1]):.4f}")
    values = {text: np.concatenate(parts) for text, parts in quality.items()}
    rows: dict[str, object] = {}
    for text in TEXTS:
        paired = compare_paired(values[text], values["no text"], groups=groups)
        row = {"NDCG@10": round(float(np.nanmean(values[text])), 4)}
        if text != "no text":
            row |= {"gain": round(paired.mean_difference, 4), "p": float(f"{paired.p:.2g}")}
        rows[text] = row
    return rows


def folds(name: str) -> list[tuple[QuerySet, QuerySet]]:
    """Return the training and test queries of five folds, with texts and vectors."""
    if name == "msrd":
        queries = QuerySet.concat([part.replace(y=part.grades) for part in msrd().values()])
        texts = msrd_texts()
        columns = {**queries.query_columns, "text": np.array([texts[qid] for qid in queries.qid.tolist()])}
        return list(fold_queries(queries.replace(query_columns=columns), 5, group="movie", seed=0))
    queries, fold = judged_text(name)
    return [(queries[fold != number], queries[fold == number]) for number in range(1, 6)]


def msrd_texts() -> dict[str, str]:
    """Return the text of each MSRD query by id."""
    with gzip.open(collections().path / "text/msrd/movies-judgments.tsv.gz", "rt", encoding="utf-8") as stream:
        rows = csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {row["query_id"].removeprefix("qid:"): row["query"] for row in rows}


def with_text(queries: QuerySet, text: str) -> QuerySet:
    """Return the queries with the columns of one kind of text."""
    dropped = {"no text": {"text", "vector"}, "n-grams": {"vector"}, "MiniLM": {"text"}}[text]
    columns = {name: column for name, column in queries.query_columns.items() if name not in dropped}
    return queries.replace(query_columns=columns)


def make(name: str, kind: str) -> Ranker:
    """Return the ranker to fit."""
    reference = "bm25_all" if name == "msrd" else None
    group = "movie" if name == "msrd" else None
    if kind == "kin":
        return KinRanker(group_column=group, settings={"reference": reference})
    return KnnRanker(
        NEIGHBORS[name],
        describe=Describer("auto", reference=reference, n_components=46),
        neighbor_weights="gaussian",
        prior="global",
        missing="mean",
    )


def encoder_cost(name: str) -> dict[str, object]:
    """Return what the n-gram encoder of the first fold costs."""
    train, test = folds(name)[0]
    texts = test.query_columns["text"].tolist()
    start = time.perf_counter()
    encoder = NgramEncoder().fit(train.query_columns["text"].tolist())
    fitted = time.perf_counter() - start
    times = []
    for text in texts[:1000]:
        start = time.perf_counter()
        encoder.encode([text])
        times.append(time.perf_counter() - start)
    size = sum(array.nbytes for array in encoder.get_state().values())
    return {
        "n-grams": {
            "texts": len(train),
            "seconds to fit": round(fitted, 1),
            "microseconds": round(1e6 * statistics.median(times)),
            "megabytes": round(size / 1e6, 1),
        }
    }
