"""KinRanker's weights in an engine's request: how closely they follow its ranking, and what else the engine finds.

MSRD's movies in Elasticsearch, the tutorial's 26 features. The log contains what ``kinrank log`` logs by default, the
first 100 hits of each query, or (``--candidates judged``) the judged movies. All methods are fitted on the training and
validation queries of the fixed split by movie; LightGBM chooses shape and number of trees on a part of them. NDCG@10 on
the test queries, with paired t-tests:

- *candidates*: the logged candidates in the order of each method. The order by KinRanker's weights comes from the
  engine, which gets them in the request; those by other weights are sums of the logged features.
- *whole index*: the engine ranks every movie that matches, by the weights in the request. Its first 100 hits count.

"users" is what users see, with unjudged movies as not relevant; "judged" leaves unjudged movies out. In both, the best
possible ranking contains all judged movies, found or not. At the end, requests with the query's own weights are timed
against fixed weights, interleaved.

``--candidates precomputed`` needs no engine and measures the first part only: judged movies with the 20 features that
come with the collection, fitted on the training queries.

Logs, scores and hits are kept in ``benchmarks/results/kin_weights``, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import log_progress, movie_of, msrd
from benchmarks.engine_msrd import CHECKOUT, MOVIES, WORKERS, compared, in_turn, index_movies, row, running
from benchmarks.live_msrd import TOP, VIEWS, log_candidates, qualities, sample
from kinrank import KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.arrays import Float64
from kinrank.data.texts import VECTORS
from kinrank.engines import connect
from kinrank.engines._logger import read_judgments
from kinrank.engines.lucene import LuceneEngine
from kinrank.parallel import Threads, map_ordered
from kinrank.study.peers import LightGBMPeer

OPTIONS = {"candidates": ("top", "judged", "precomputed"), "queries": ("all", "400"), "train": ("all", "5000")}
PORT = 9285
WINDOW = 100
GLOBAL, KNN, KIN, NONNEGATIVE = "global weights", "KnnRanker's weights", "KinRanker's weights", "nonnegative"
WEIGHTS = (GLOBAL, KNN, KIN, NONNEGATIVE)


def run(candidates: str, queries: str, train: str) -> dict[str, object]:
    """Log, fit, and let the engine rank with the weights."""
    work = CHECKOUT / "benchmarks" / "results" / "kin_weights" / f"{candidates}-{queries}"
    work.mkdir(parents=True, exist_ok=True)
    if candidates == "precomputed":
        return without_engine(work)
    judged = sample(work, None if queries == "all" else int(queries))
    with (
        running("elasticsearch", port=PORT) as address,
        connect(f"{address}/movies", MOVIES / "features.toml", timeout=60.0) as engine,
    ):
        assert isinstance(engine, LuceneEngine)
        index_movies(engine, "elasticsearch", work)
        logged = log_candidates(engine, judged, work, candidates)
        is_test = np.isin(logged.qid, read_judgments(work / "test.tsv").qid)
        test, others = logged[is_test], logged[~is_test][: None if train == "all" else int(train)]
        work = work / f"train-{train}"
        work.mkdir(exist_ok=True)
        learned = kept(work / "learned.npz", lambda: fitted(others, test))
        weights = {name: learned[name] for name in WEIGHTS}
        log_progress("the engine ranks the candidates")
        ranked = kept(work / "ranked.npz", lambda: {KIN: ranks_by_engine(engine, weights[KIN], test)})
        found = {}
        for name in WEIGHTS:
            log_progress(f"the engine ranks all movies by {name}")
            found[name] = kept(
                work / f"found, {name}.npz", lambda name=name: hits_by_weights(engine, weights[name], test)
            )
        cost = time_requests(engine, weights[KIN], weights[GLOBAL], test)
    sums = weighted_sums(test, learned)
    scores = {"engine's own order": -np.arange(test.n_rows, dtype=np.float64)} if candidates == "top" else {}
    scores |= {name: learned[name] for name in ("LightGBM", "KinRanker")} | sums | {KIN: -ranked[KIN]}
    on_candidates = dict(qualities(test, scores, judged))
    whole = {name: qualities_found(test, each, judged) for name, each in found.items()}
    movies = movie_of(test.qid)
    same = [same_order(test, query, sums[KIN], ranked[KIN]) for query in range(len(test))]
    return {
        "training queries": len(others),
        "test queries": len(test),
        "candidates": {view: table(on_candidates, view, KIN, movies) for view in VIEWS},
        "whole index": {
            view: table({f"{name}, {view}": values[view] for name, values in whole.items()}, view, KIN, movies)
            for view in VIEWS
        },
        "KinRanker's weights, whole index against its candidates": {
            view: row(whole[KIN][view], on_candidates[f"{KIN}, {view}"], movies) for view in VIEWS
        },
        "share unjudged in the first 10": {
            **{name: share_unjudged(test, each) for name, each in scores.items()},
            **{f"{name}, whole index": round(float(values["unjudged"].mean()), 3) for name, values in whole.items()},
        },
        "share of the first 10 of the whole index that are no candidates": {
            name: round(float(values["new"].mean()), 3) for name, values in whole.items()
        },
        "fidelity": quantiles(learned["fidelity"]),
        "engine's order equals that of the sums, ties aside": f"{sum(same)} of {len(same)}",
        "requests": cost,
    }


def without_engine(work: Path) -> dict[str, object]:
    """Rank the judged candidates by all methods, with precomputed features."""
    parts = msrd()
    train, test = parts["train"], parts["test"]
    learned = kept(work / "learned.npz", lambda: fitted(train, test, reference="bm25_all"))
    scores = {name: learned[name] for name in ("LightGBM", "KinRanker")} | weighted_sums(test, learned)
    return {
        "test queries": len(test),
        "candidates": table(dict(qualities(test, scores, test)), "judged", KIN, movie_of(test.qid)),
        "fidelity": quantiles(learned["fidelity"]),
    }


def weighted_sums(test: QuerySet, learned: Mapping[str, Float64]) -> dict[str, Float64]:
    """Return the score of each candidate by each kind of weights; a missing value counts as 0."""
    X = np.nan_to_num(test.X)
    return {name: np.einsum("ij,ij->i", X, learned[name][test.query_of_row]) for name in WEIGHTS}


def quantiles(values: Float64) -> dict[str, float]:
    """Return low quantiles and the median."""
    return dict(zip(("1%", "5%", "median"), np.quantile(values, [0.01, 0.05, 0.5]).round(3).tolist(), strict=True))


def kept(out: Path, make: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return arrays that are made once and kept in a file."""
    if not out.exists():
        part = out.with_name(f"{out.stem}.part.npz")
        np.savez(part, **make())
        part.rename(out)
    with np.load(out) as stored:
        return dict(stored)


def fitted(train: QuerySet, test: QuerySet, reference: str | None = None) -> dict[str, Float64]:
    """Fit all methods and return their scores or weights of the test queries."""
    log_progress(f"fit KinRanker on {train}")
    kin = KinRanker(group_column="movie", settings={"reference": reference}).fit(train)
    log_progress(f"{kin.remarks()}; rank and weigh")
    found = kin.weights_with_fidelity(test)
    assert found.fidelity is not None
    learned = {"KinRanker": kin.predict(test), KIN: found.weights, "fidelity": found.fidelity}
    learned[NONNEGATIVE] = kin.copy().set_params(settings={"reference": reference, "nonnegative": True}).weights(test)
    log_progress("fit the others")
    learned[KNN] = KnnRanker(kin.n_neighbors_, reference=reference, missing="mean").fit(train).weights(test)
    learned[GLOBAL] = SingleRanker("rankrls", missing="mean").fit(train).weights(test)
    learned["LightGBM"] = LightGBMPeer(group_column="movie").fit(train).predict(test)
    return learned


# --- the engine ------------------------------------------------------------------------------------------------------


def ranks_by_engine(engine: LuceneEngine, weights: Float64, test: QuerySet) -> Float64:
    """Return the rank of each candidate in the engine's order by the query's weights."""

    def ranks(query: int) -> NDArray[np.intp]:
        ids = test[query].doc_id.tolist()
        text, vector = inputs(test, query)
        hits = engine.apply(text, weights[query], size=len(ids), vector=vector, doc_ids=ids)
        place = {doc_id: rank for rank, doc_id in enumerate(hits.doc_id.tolist())}
        return np.array([place[doc_id] for doc_id in ids])

    return np.concatenate(list(map_ordered(Threads(WORKERS), ranks, range(len(test))))).astype(np.float64)


def hits_by_weights(engine: LuceneEngine, weights: Float64, test: QuerySet) -> dict[str, NDArray[np.str_]]:
    """Return the first hits of the whole index by each query's weights; an empty id after the last."""

    def search(query: int) -> list[str]:
        text, vector = inputs(test, query)
        ids: list[str] = engine.apply(text, weights[query], size=WINDOW, vector=vector).doc_id.tolist()
        return ids + [""] * (WINDOW - len(ids))

    return {"ids": np.array(list(map_ordered(Threads(WORKERS), search, range(len(test)))))}


def inputs(test: QuerySet, query: int) -> tuple[str, NDArray[Any]]:
    """Return text and vector of a query."""
    return str(test.query_columns["text"][query]), test.query_columns[VECTORS][query]


def time_requests(
    engine: LuceneEngine, own: Float64, fixed: Float64, test: QuerySet, n_queries: int = 300
) -> dict[str, object]:
    """Time requests with the query's own weights and with fixed ones, on the candidates and on the whole index."""
    figures: dict[str, object] = {}
    for kind in ("candidates", "whole index"):
        seconds: dict[str, list[float]] = {"fixed weights": [], "own weights": []}
        for query in range(min(n_queries + 10, len(test))):
            text, vector = inputs(test, query)
            ids = test[query].doc_id.tolist() if kind == "candidates" else None
            engine.apply(text, fixed[query], size=TOP, vector=vector, doc_ids=ids)  # fills the engine's caches
            for name, weights in in_turn([("fixed weights", fixed[query]), ("own weights", own[query])], query):
                start = time.perf_counter()
                engine.apply(text, weights, size=TOP, vector=vector, doc_ids=ids)
                seconds[name].append(time.perf_counter() - start)
        figures[kind] = compared(*(seconds[name][10:] for name in seconds), *seconds)
    return figures


# --- quality ---------------------------------------------------------------------------------------------------------


def qualities_found(test: QuerySet, found: Mapping[str, NDArray[np.str_]], judged: QuerySet) -> dict[str, Float64]:
    """Return each query's NDCG@10 of the engine's hits in both views, and shares of its first ten hits."""
    pairs = zip(judged.qid[judged.query_of_row].tolist(), judged.doc_id.tolist(), strict=True)
    grade = dict(zip(pairs, judged.grades.tolist(), strict=True))
    ids = [[doc_id for doc_id in row if doc_id] for row in found["ids"].tolist()]
    asked = zip(test.qid.tolist(), ids, strict=True)
    grades = [[grade.get((qid, doc_id), np.nan) for doc_id in row] for qid, row in asked]
    sizes = [len(row) for row in ids]
    hits = QuerySet.from_arrays(np.zeros((sum(sizes), 1)), np.concatenate(grades), qid=np.repeat(test.qid, sizes))
    values = dict(qualities(hits, {"": -np.arange(hits.n_rows, dtype=np.float64)}, judged))
    known = [set(query.doc_id.tolist()) for query in test]
    return {
        **{view: values[f", {view}"] for view in VIEWS},
        "unjudged": np.array([np.isnan(row[:TOP]).mean() for row in grades]),
        "new": np.array(
            [np.mean([doc_id not in seen for doc_id in row[:TOP]]) for row, seen in zip(ids, known, strict=True)]
        ),
    }


def table(values: Mapping[str, Float64], view: str, own: str, movies: NDArray[np.str_]) -> dict[str, object]:
    """Return the mean of each method in a view, and the comparison of one with all others, by movie."""
    chosen = {name.removesuffix(f", {view}"): each for name, each in values.items() if name.endswith(f", {view}")}
    return {
        **{name: round(float(each.mean()), 4) for name, each in chosen.items()},
        f"{own} against": {name: row(chosen[own], each, movies) for name, each in chosen.items() if name != own},
    }


def share_unjudged(test: QuerySet, scores: Float64) -> float:
    """Return the mean share of unjudged movies in the first ten."""
    shares = []
    for start, stop in zip(test.offsets[:-1], test.offsets[1:], strict=True):
        first = np.argsort(-scores[start:stop], kind="stable")[:TOP]
        shares.append(1 - test.judged[start:stop][first].mean())
    return round(float(np.mean(shares)), 3)


def same_order(test: QuerySet, query: int, sums: Float64, ranks: Float64) -> bool:
    """Return whether the sums never increase along the engine's order, beyond single precision."""
    rows = slice(test.offsets[query], test.offsets[query + 1])
    along = sums[rows][np.argsort(ranks[rows])]
    return bool(np.diff(along).max(initial=0.0) <= 1e-5 * max(np.ptp(along), 1e-12))
