"""/v1/search with the tutorial's 26 features compared with the bare search, and what each feature costs.

MSRD's movies in Elasticsearch, 100 candidates. ``kinrank serve`` ranks with KinRanker, fitted on the judged candidates
of 1,000 queries. All variants take turns on each query, after a search that fills the engine's caches. Medians over the
queries:

- *bare search*: the engine's own query, sent by its official client.
- *features*: the request that also returns the features, decoded; also without the one that costs most.
- */v1/search*: the same and the ranking, over HTTP.
- *weights from text*: KnnRanker describes the query by its text, so that its weights need no candidates; the engine
  ranks the first 100 hits with them, in one request.
- *fewer features*: both with a model that was trained without the features that trees gain least from, together less
  than ``--least`` of the gain; the service then asks the engine for the others. *NDCG@10* of both models on the judged
  hits of other queries, and the p of the difference by query.
- *feature by feature*: the CPU time of the engine for the request with one feature only, more than for the
  bare search. Unlike the time of a request, it depends little on other load.

The log is kept in ``benchmarks/results/search_cost``. ``KINRANK_ELASTICSEARCH`` is the address of a running server;
without it, one is started. ``--cpu no`` leaves out the times feature by feature.
"""

from __future__ import annotations

import http.client
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
from scipy.stats import ttest_rel

from benchmarks.common import log_progress
from benchmarks.engine_msrd import CHECKOUT, MOVIES, in_turn, index_movies, running
from benchmarks.live_msrd import log_candidates, sample, with_features
from benchmarks.serve_load import cpu_seconds, free_port, started
from kinrank import KinRanker, KnnRanker, QuerySet
from kinrank.arrays import Float32
from kinrank.data.texts import VECTORS
from kinrank.engines import FeatureSet, connect
from kinrank.engines.lucene import LuceneEngine
from kinrank.measure import NDCG

OPTIONS = {"queries": ("200", "60", "20"), "least": ("0.05", "0.01", "0.1", "0.2", "0.3"), "cpu": ("yes", "no")}
PORT = 9290
WINDOW, SIZE = 100, 10
JUDGED = 1_000
CPU_QUERIES = 20
MEASURE = NDCG @ 10
FUZZY = "title_fuzzy"
"""The feature that costs most."""
Call = Callable[[str, Float32], object]


def run(queries: str, least: str, cpu: str) -> dict[str, object]:
    """Return the times of all variants."""
    work = CHECKOUT / "benchmarks" / "results" / "search_cost"
    work.mkdir(parents=True, exist_ok=True)
    judged = sample(work, JUDGED + int(queries))
    features = FeatureSet.read(MOVIES / "features.toml")
    server = os.environ.get("KINRANK_ELASTICSEARCH")
    with ExitStack() as stack:
        address = server or stack.enter_context(running("elasticsearch", port=PORT))
        engine = stack.enter_context(connect(f"{address}/movies", features, timeout=60.0))
        assert isinstance(engine, LuceneEngine)
        engine.delete_index()
        index_movies(engine, "elasticsearch", work)
        stack.callback(engine.delete_index)
        logged = log_candidates(engine, judged, work)
        known = np.isin(logged.qid, judged[:JUDGED].qid)
        train, test, asked = logged[known], logged[~known], judged[JUDGED:]
        # One repeat, as if there were 2,000 judged queries or more: each repeat adds tree models.
        whole_model = KinRanker(group_column="movie", settings={"n_repeats": 1}).fit(train)
        order = np.argsort(whole_model.feature_importances_)
        gains = whole_model.feature_importances_[order] / whole_model.feature_importances_.sum()
        kept = features.only({features.names[place] for place in order[np.cumsum(gains) >= float(least)]})
        fewer_model = KinRanker(group_column="movie", settings={"n_repeats": 1}).fit(with_features(train, kept))
        values = [
            MEASURE.per_query(model.predict(each), test.grades, test.offsets)
            for model, each in ((whole_model, test), (fewer_model, with_features(test, kept)))
        ]
        whole_model.save(work / "kin", examples=train[:20])
        fewer_model.save(work / "fewer", examples=with_features(train[:20], kept))
        with serving(work, f"{address}/movies", "kin") as search, serving(work, f"{address}/movies", "fewer") as fewer:
            fallbacks: list[object] = []
            calls = whole(engine, lambda *query: fallbacks.append(search(*query)), train)
            calls["/v1/search, fewer features"] = lambda *query: fallbacks.append(fewer(*query))
            calls["fewer features"] = features_of(engine.with_features(kept.names))
            calls[f"features without {FUZZY}"] = features_of(engine.with_features(set(features.names) - {FUZZY}))
            times = timed(asked, calls)
        fell_back = sum(each is not None for each in fallbacks)
        figures: dict[str, object] = {
            "whole": ratios(times),
            "features left out": [name for name in features.names if name not in kept.names],
            "NDCG@10, all and fewer features": [round(float(np.nanmean(each)), 4) for each in values],
            "p": float(ttest_rel(*values, nan_policy="omit").pvalue),
            "fell back": f"{fell_back} of {len(fallbacks)}",
        }
        log_progress(str(figures))
        if cpu == "no":
            return figures
        calls = {"bare search": bare(engine), "all features": features_of(engine)}
        calls |= {name: features_of(engine.with_features([name])) for name in features.names}
        return {**figures, "CPU ms of the engine": engine_cpu(engine, asked[:CPU_QUERIES], calls)}


def whole(engine: LuceneEngine, search: Call, logged: QuerySet) -> dict[str, Call]:
    """Return the calls of a whole search."""
    text = KnnRanker(describe="text", encoder=None, missing="mean").fit(logged)
    return {
        "bare search": bare(engine),
        "features": features_of(engine),
        "/v1/search": search,
        "weights from text": lambda query, vector: engine.apply(
            query, weights_from_text(text, vector), size=SIZE, window=WINDOW, vector=vector
        ),
        "weights from text, without the engine": lambda _, vector: weights_from_text(text, vector),
    }


def bare(engine: LuceneEngine) -> Call:
    """Return a call of the engine's own search."""
    return lambda query, vector: engine.search(query, size=WINDOW, vector=vector)


def features_of(engine: LuceneEngine) -> Call:
    """Return a call of the search with features."""
    return lambda query, vector: engine.search_features(query, size=WINDOW, vector=vector)


def weights_from_text(ranker: KnnRanker, vector: Float32) -> np.ndarray:
    """Return weights for a query of which only the text is known, by its vector."""
    nothing = np.full((1, ranker.n_features_in_), np.nan, dtype=np.float32)
    return ranker.weights(nothing, group=[1], query_vectors=vector[None, :])[0]


@contextmanager
def serving(work: Path, address: str, model: str) -> Iterator[Call]:
    """Run ``kinrank serve`` with the engine; yield a call of ``/v1/search``, which returns why it fell back."""
    port = free_port()
    program = [sys.executable, "-c", "from kinrank.cli import main; main()", "serve", str(work / model)]
    options = ["--engine", address, "--features", str(MOVIES / "features.toml")]
    with contextmanager(started)([*program, *options, "--port", str(port)], port, work / f"{model}.log"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)

        def search(query: str, vector: Float32) -> object:
            body = {"query": query, "vector": vector.tolist(), "window": WINDOW, "size": SIZE}
            connection.request("POST", "/v1/search", json.dumps(body), {"Content-Type": "application/json"})
            return json.loads(connection.getresponse().read())["fallback"]

        yield search


def timed(queries: QuerySet, calls: dict[str, Call]) -> dict[str, list[float]]:
    """Return the seconds of each call for each query, in turns; the first queries do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    warm = len(queries) // 10
    for number, query in enumerate(queries):
        text, vector = inputs(query)
        next(iter(calls.values()))(text, vector)  # fills the engine's caches
        for name in in_turn(list(calls), number):
            start = time.perf_counter()
            calls[name](text, vector)
            if number >= warm:
                seconds[name].append(time.perf_counter() - start)
    return seconds


def engine_cpu(engine: LuceneEngine, queries: QuerySet, calls: dict[str, Call], rounds: int = 5) -> dict[str, float]:
    """Return the median CPU time of the engine per request, in milliseconds; of all but the first, minus the first."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    pid = process_of(engine)
    for turn in range(rounds + 1):
        for name in in_turn(list(calls), turn):
            before = cpu_seconds(pid)
            for query in queries:
                calls[name](*inputs(query))
            if turn:  # the first round fills caches and compiles
                spent[name].append(1000 * (cpu_seconds(pid) - before) / len(queries))
    middle = {name: statistics.median(each) for name, each in spent.items()}
    first = next(iter(middle))
    return {name: round(each - (0 if name == first else middle[first]), 2) for name, each in middle.items()}


def process_of(engine: LuceneEngine) -> int:
    """Return the process id of the engine's only node, which runs on this machine."""
    (node,) = engine._send("GET", "/_nodes/process", {}, None, 60.0)["nodes"].values()
    pid: int = node["process"]["id"]
    return pid


def inputs(query: QuerySet) -> tuple[str, Float32]:
    """Return text and vector of a query."""
    return str(query.query_columns["text"][0]), query.query_columns[VECTORS][0].astype(np.float32)


def ratios(seconds: dict[str, Sequence[float]]) -> dict[str, object]:
    """Return the median milliseconds of each call, and its ratio to the first."""
    middle = {name: statistics.median(each) for name, each in seconds.items()}
    first = next(iter(middle.values()))
    return {name: {"p50 ms": round(1e3 * each, 2), "ratio": round(each / first, 2)} for name, each in middle.items()}
