"""Judgments of similar queries as evidence, split at random by query: as features, and in closed form.

Every training query lends the documents that it judged to similar queries. *Precedents*: `PrecedentRanker` with its
defaults, which hold out training queries to decide whether to use them. *All queries alike*: a control with how often
and how well a document was judged for all training queries, similar or not, as features. *Closed form*: the posterior
of `ChoiceRanker` with the settings whose likelihood on training queries, without their own judgments, is highest.
NDCG@10 of LightGBM and KinRanker with and without, pooled over the folds that are measured; p of MSRD by movie. MSRD is
also split by movie, where the relevant documents of a test query never occur in training; *no group* is the same for a
user who does not tell the ranker so. *Time* is that of ranking queries one by one on one thread, the ranker alone and
with precedents in turns, in microseconds. NFCorpus and SciFact need the features that
``python -m benchmarks confirmation`` logs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks.common import interleaved, judged_text, log_progress, medians, msrd
from benchmarks.confirmation import acordar2, logged
from kinrank import PrecedentRanker, QuerySet
from kinrank.arrays import Float64
from kinrank.data.split import fold_of_query
from kinrank.data.texts import TEXT
from kinrank.measure import NDCG, compare_paired
from kinrank.memory.evidence import Evidence, Totals
from kinrank.parallel import use_threads
from kinrank.rankers import RANKERS
from kinrank.rankers.choices.calibration import Calibration
from kinrank.rankers.choices.posterior import LaterClicks, Posterior
from kinrank.rankers.local.kin_evidence import KinEvidence
from kinrank.rankers.wrapped import new

OPTIONS = {
    "collection": ["msrd", "msrd by movie", "nfcorpus", "scifact", "mwmbl", "acordar2"],
    "around": ["LightGBM", "KinRanker"],
    "queries": ["all", "8000", "800"],
    "folds": ["4", "1", "2"],
    "methods": ["all", "precedents", "time"],
}
SPECS = {"LightGBM": "single(learner=lambdamart)", "KinRanker": "kin"}
MEASURE = NDCG @ 10
WIDTHS = (0.5, 1.0, 2.0)
N_FOLDS = 4
TIMED = 200


def read(collection: str, queries: str) -> QuerySet:
    """Return the judged queries, at most as many as wanted, with texts and document ids."""
    if collection.startswith("msrd"):
        found = QuerySet.concat(list(msrd().values()))
        found = found.replace(query_columns={**found.query_columns, TEXT: found.qid.astype(np.str_)})
    elif collection in ("nfcorpus", "scifact"):
        found = logged(collection)
    else:
        found = acordar2() if collection == "acordar2" else judged_text(collection)[0]
    if queries != "all" and int(queries) < len(found):
        found = found[np.sort(np.random.default_rng(0).permutation(len(found))[: int(queries)])]
    return found


def alike(train: QuerySet, queries: QuerySet) -> Float64:
    """Return how often each candidate was judged for all other training queries, and its smoothed mean grade there."""
    documents, of_row = np.unique(np.r_[train.doc_id, queries.doc_id].astype(np.str_), return_inverse=True)
    best = train.grades.max()
    of_train, asked = of_row[: train.n_rows], of_row[train.n_rows :]
    counts = np.bincount(of_train, minlength=len(documents))[asked].astype(np.float64)
    grades = np.bincount(of_train, train.grades / best, minlength=len(documents))[asked]
    if queries is train:
        counts, grades = counts - 1, grades - train.grades / best
    return np.column_stack([counts, (grades + train.grades.mean() / best) / (counts + 1)])


def with_columns(queries: QuerySet, columns: Float64) -> QuerySet:
    """Return queries with further features."""
    names = tuple(f"judged_{number}" for number in range(columns.shape[1]))
    joined = np.column_stack([queries.X, columns]).astype(np.float32)
    return queries.replace(X=joined, feature_names=(*queries.feature_names, *names))


def closed_form(kin: KinEvidence, train: QuerySet, test: QuerySet, out_of_fold: Float64, scores: Float64) -> Float64:
    """Return the posterior of test queries, with the settings that make judgments of training queries most likely."""
    seen = Evidence.of_judgments(train, 1.0).totals(train)
    calibration = Calibration().fit(out_of_fold, train.offsets, seen)
    p = calibration.predict(out_of_fold, train.offsets)
    kin.remember(train, seen, p)
    nothing = [Totals.zeros(each.n_rows) for each in (train, test)]
    judged = LaterClicks(p, train.query_of_row, lambda _: nothing[0], seen)
    start = Posterior(rate=calibration.rate_)
    best, value = start, judged.likelihood(start).sum()
    neighbors = kin.neighbors(train)
    for width in WIDTHS:
        lent = kin.totals(train, neighbors, width)
        for strength in (1.0, 3.0, 10.0, 30.0):
            other = replace(start, strength=strength, discount=1.0, width=width)
            likelihood = judged.likelihood(other, lent).sum()
            best, value = (other, likelihood) if likelihood > value else (best, value)
    log_progress(f"closed form: {best}")
    lent = kin.totals(test, kin.neighbors(test), best.width)
    return best.mean(calibration.predict(scores, test.offsets), nothing[1], lent)


def measured(
    spec: str, train: QuerySet, test: QuerySet, *, group: str | None, closed: bool, controls: bool
) -> Iterator[tuple[str, Float64]]:
    """Yield the values of test queries with each method."""

    def fitted(part: QuerySet, asked: QuerySet) -> Float64:
        return np.asarray(RANKERS.make(spec).fit(part).predict(asked), dtype=np.float64)

    def values(scores: Float64) -> Float64:
        return MEASURE.per_query(scores, test.grades, test.offsets)

    def with_precedents(group: str | None) -> Float64:
        ranker = PrecedentRanker(spec, group_column=group).fit(train)
        log_progress(ranker.remarks()[-1])
        return values(ranker.predict(test))

    scores = fitted(train, test)
    yield "alone", values(scores)
    yield "precedents", with_precedents(group)
    if not controls:
        return
    if group is not None:
        yield "precedents, no group", with_precedents(None)
    yield "all queries alike", values(fitted(*(with_columns(part, alike(train, part)) for part in (train, test))))
    if not closed:
        return
    seen = Evidence.of_judgments(train, 1.0).totals(train)
    kin = KinEvidence().fit(train).remember(train, seen, np.zeros(train.n_rows))
    out_of_fold = np.empty(train.n_rows)
    fold = fold_of_query(train, N_FOLDS, seed=1)
    for number in range(N_FOLDS):
        rows = train.rows_of(np.flatnonzero(fold == number))
        out_of_fold[rows] = fitted(train[fold != number], train[fold == number])
    yield "closed form", values(closed_form(kin, train, test, out_of_fold, scores))


def rank_times(spec: str, train: QuerySet, test: QuerySet) -> dict[str, Any]:
    """Return the median time to rank a query with the ranker alone, and with precedents."""
    with use_threads(1):
        rankers = {"alone": new(spec).fit(train), "with precedents": PrecedentRanker(spec, decide=False).fit(train)}
        seconds: dict[str, list[float]] = {name: [] for name in rankers}
        for query in test[:TIMED]:
            calls = {name: partial(ranker.predict_with_novelty, query) for name, ranker in rankers.items()}
            for name, times in interleaved(calls, repeats=3).items():
                seconds[name] += times
    found = {name: round(1e6 * each) for name, each in medians(seconds).items()}
    return {"microseconds": found, "ratio": round(found["with precedents"] / found["alone"], 2)}


def run(
    collection: str = "msrd", around: str = "LightGBM", queries: str = "all", folds: str = "4", methods: str = "all"
) -> dict[str, Any]:
    """Measure all methods."""
    judged = read(collection, queries)
    if judged.doc_id is None:
        return {"collection": collection, "note": "no document ids, so that nothing can be remembered"}
    group = "movie" if collection.endswith("by movie") else None
    fold = fold_of_query(judged, N_FOLDS, group=group, seed=0)
    if methods == "time":
        times = rank_times(SPECS[around], judged[fold > 0], judged[fold == 0])
        return {"collection": collection, "around": around, "candidates": judged.n_rows / len(judged), **times}
    pooled: dict[str, list[Float64]] = {}
    movies: list[np.ndarray] = []
    for number in range(int(folds)):
        train, test = judged[fold != number], judged[fold == number]
        movies.append(test.query_columns.get("movie", test.qid))
        settings = {"group": group, "closed": around == "LightGBM", "controls": methods == "all"}
        for name, values in measured(SPECS[around], train, test, **settings):
            pooled.setdefault(name, []).append(values)
            log_progress(f"fold {number}, {around}, {name}: {values.mean():.4f}")
    both = {name: np.concatenate(values) for name, values in pooled.items()}
    groups = np.concatenate(movies)
    pairs = [(name, "alone") for name in both if name != "alone"]
    pairs += [("precedents", name) for name in both if name == "all queries alike"]
    gains = {f"{a} minus {b}": compare_paired(both[a], both[b], groups=groups) for a, b in pairs}
    return {
        "collection": collection,
        "around": around,
        "queries": len(judged),
        "tested": len(both["alone"]),
        "NDCG@10": {name: round(float(np.nanmean(values)), 4) for name, values in both.items()},
        "gain": {
            name: {"difference": round(gain.mean_difference, 4), "p": float(f"{gain.p:.2g}")}
            for name, gain in gains.items()
        },
    }
