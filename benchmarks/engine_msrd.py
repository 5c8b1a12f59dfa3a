"""Index MSRD in Elasticsearch or OpenSearch, log features, learn, and rank with per-query weights.

All features come from the engine (``examples/movies/features.toml``). The boosts and the type of the engine's
``multi_match`` baseline and the settings of KNN and LightGBM are chosen on the validation queries. Intermediate files
are kept in ``benchmarks/results/engine_msrd``, so that an interrupted run can be resumed.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.common import data_dir, log_progress, movie_of
from benchmarks.knn_msrd import best_trees, per_query, row, table
from examples.movies.prepare import PARTS, prepare
from kinrank import KinRanker, KnnRanker, QuerySet, SingleRanker, read_parquet
from kinrank.engines import FeatureSet, connect
from kinrank.engines._logger import FeatureLogger, ResumableLog, read_judgments, read_vectors
from kinrank.engines.base import RetryingPool
from kinrank.engines.lucene import LuceneEngine
from kinrank.kin import Describer
from kinrank.measure import NDCG
from kinrank.rankers import Ranker

OPTIONS = {"engine": ("elasticsearch", "opensearch"), "queries": ("all", "400", "2000")}
CHECKOUT = Path(__file__).parents[1]
MOVIES = CHECKOUT / "examples" / "movies"
FIELDS = ("title", "characters", "actors", "director", "tags", "genres", "overview")
BOOSTS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
MEASURE = NDCG @ 10
WORKERS = 4
CANDIDATES = 50
PORTS = {"elasticsearch": 9260, "opensearch": 9270}
Variant = TypeVar("Variant")


def run(engine: str, queries: str) -> dict[str, object]:
    """Run all steps and measure quality and cost."""
    work = CHECKOUT / "benchmarks" / "results" / "engine_msrd" / f"{engine}-{queries}"
    work.mkdir(parents=True, exist_ok=True)
    with running(engine) as address:
        figures: dict[str, object] = {"engine": engine, "queries": queries}
        judged = prepare_queries(work, None if queries == "all" else int(queries))
        with connect(f"{address}/movies", MOVIES / "features.toml", timeout=60.0) as opened:
            assert isinstance(opened, LuceneEngine)
            figures["indexing"] = index_movies(opened, engine, work)
            figures["logging relative to a client loop"] = throughput(opened, judged["test"])
            logged, figures["logging"] = log_all(opened, judged, work)
            figures["quality"], rankers = quality(logged, judged, address)
            figures["live re-ranking"] = live(opened, rankers["KNN Online"], logged["test"])
            figures["weights in the request"] = applied(opened, rankers, logged["test"])
    return figures


@contextmanager
def running(engine: str, nodes: int = 1, port: int | None = None) -> Iterator[str]:
    """Run a temporary server and yield its address."""
    script = str(CHECKOUT / "scripts" / "engine")
    server = [engine, "--port", str(port or PORTS[engine])]
    started = subprocess.run(
        [script, "start", *server, "--nodes", str(nodes)], check=True, stdout=subprocess.PIPE, text=True
    )
    try:
        yield started.stdout.strip()
    finally:
        subprocess.run([script, "stop", *server], check=True)


def prepare_queries(work: Path, n_queries: int | None) -> dict[str, QuerySet]:
    """Return the judged queries with their texts and vectors."""
    if not (work / "vectors.parquet").exists():
        prepare(data_dir() / "text" / "msrd", work, n_queries)
    return {part: read_vectors(work / "vectors.parquet", read_judgments(work / f"{part}.tsv")) for part in PARTS}


def index_movies(engine: LuceneEngine, name: str, work: Path) -> dict[str, float]:
    """Index the movies and measure the time."""
    start = time.perf_counter()
    movies = (json.loads(line) for line in (work / "movies.jsonl").open())
    settings = json.loads((MOVIES / f"{name}.json").read_text())
    count = engine.index(((movie.pop("id"), movie) for movie in movies), settings=settings)
    log_progress(f"{count} movies indexed")
    return {"movies": count, "seconds": round(time.perf_counter() - start, 1)}


# --- logging ---------------------------------------------------------------------------------------------------------


def throughput(engine: LuceneEngine, judged: QuerySet, block: int = 20, turns: int = 12) -> dict[str, object]:
    """Measure queries per second of our log and of a loop that sends the same requests with the client, in turns."""
    seconds: dict[str, list[float]] = {"client loop": [], "kinrank, 1 worker": [], f"kinrank, {WORKERS} workers": []}
    logger = FeatureLogger(engine, candidates="judged")
    for turn in range(turns + 1):
        some = judged[(turn * block) % max(1, len(judged) - block) :][:block]
        requests = [captured_request(engine, query) for query in some]
        calls = {
            "client loop": lambda requests=requests: [send(engine, *request) for request in requests],
            "kinrank, 1 worker": lambda some=some: list(logger.log(some, RetryingPool(1))),
            f"kinrank, {WORKERS} workers": lambda some=some: list(logger.log(some, RetryingPool(WORKERS))),
        }
        calls["client loop"]()  # warm the engine's caches, so that the first variant has no disadvantage
        for name in in_turn(list(calls), turn):
            start = time.perf_counter()
            calls[name]()
            if turn:  # the first turn opens connections
                seconds[name].append(time.perf_counter() - start)
    rates = {name: block / float(np.median(times)) for name, times in seconds.items()}
    figures: dict[str, object] = {f"{name}, queries/s": round(rate, 1) for name, rate in rates.items()}
    figures |= {
        f"{name}, ratio": round(float(np.median(np.array(seconds["client loop"]) / times)), 3)
        for name, times in seconds.items()
        if name != "client loop"
    }
    log_progress(str(figures))
    return figures


def in_turn(variants: list[Variant], turn: int) -> list[Variant]:
    """Rotate the variants, so that each runs in each position equally often."""
    first = turn % len(variants)
    return variants[first:] + variants[:first]


def captured_request(engine: LuceneEngine, query: QuerySet) -> tuple[str, dict[str, object], object]:
    """Return the request that a log sends for a query, without sending it."""
    captured: list[tuple[str, dict[str, object], object]] = []

    class CapturedError(Exception):
        pass

    def capture(_: str, path: str, params: dict[str, object], body: object, __: float) -> object:
        captured.append((path, params, body))
        raise CapturedError

    features = engine.features
    features("warm", ["0"], vector=query.query_columns["vector"][0])  # checks the fields, once
    engine._send = capture  # type: ignore[method-assign]
    try:
        features(str(query.query_columns["text"][0]), query.doc_id.tolist(), vector=query.query_columns["vector"][0])
    except CapturedError:
        pass
    finally:
        del engine._send
    return captured[0]


def send(engine: LuceneEngine, path: str, params: dict[str, object], body: object) -> object:
    """Send a request with the official client only."""
    if engine.name == "opensearch":
        return engine.client.transport.perform_request("POST", path, params=params, body=body)
    headers = {"accept": "application/json", "content-type": "application/json"}
    return engine.client.perform_request("POST", path, params=params, headers=headers, body=body).body


def log_inputs(engine: str, features: FeatureSet | None) -> dict[str, object]:
    """Return what a log depends on besides the movies and judgments: engine and version, features, index settings."""
    assert features is not None
    settings = json.loads((MOVIES / f"{engine.split()[0]}.json").read_text())
    return {"engine": engine, "features": features.fingerprint, "index": settings}


def delete_outdated_logs(work: Path, inputs: dict[str, object]) -> None:
    """Delete logs that were made from other inputs than those in ``logged.json``."""
    note = work / "logged.json"
    if note.exists() and json.loads(note.read_text()) == inputs:
        return
    for part in PARTS:
        (work / f"{part}.parquet").unlink(missing_ok=True)
    note.write_text(json.dumps(inputs))


def log_all(
    engine: LuceneEngine, judged: dict[str, QuerySet], work: Path
) -> tuple[dict[str, QuerySet], dict[str, object]]:
    """Log the features of all judged queries and measure the time."""
    delete_outdated_logs(work, log_inputs(engine.health().engine, engine.feature_set))
    figures: dict[str, object] = {"workers": WORKERS}
    start, n_queries = time.perf_counter(), 0
    counted: dict[str, int] = {"queries": 0, "documents": 0, "absent_documents": 0}
    for part in PARTS:
        out = work / f"{part}.parquet"
        if not out.exists():
            pool = RetryingPool(WORKERS)
            log = ResumableLog(out, judged[part], FeatureLogger(engine, candidates="judged"))
            shutil.rmtree(log.folder, ignore_errors=True)  # parts of an interrupted run, whose index was deleted
            counts = log.write(pool, lambda _: None)
            n_queries += len(judged[part])
            for name in counted:
                counted[name] += getattr(counts, name)
            log_progress(f"{part}: {counts}")
    seconds = time.perf_counter() - start
    if n_queries:
        figures |= {"minutes": round(seconds / 60, 2), "queries/s": round(n_queries / seconds, 1), **counted}
    return {part: read_parquet(work / f"{part}.parquet") for part in PARTS}, figures


# --- quality ---------------------------------------------------------------------------------------------------------


def quality(
    logged: dict[str, QuerySet], judged: dict[str, QuerySet], address: str
) -> tuple[dict[str, object], dict[str, Ranker]]:
    """Measure NDCG@10 on the test queries: the engine alone, one model, a model per query, trees."""
    train, vali, test = (logged[part] for part in PARTS)
    tuned = tune_multi_match(vali)
    log_progress(f"multi_match chosen on validation: {tuned}")
    own = engine_scores(address, tuned, judged["test"], test)
    rankers = {
        "Single RankRLS": SingleRanker("rankrls"),
        "KNN Online": choose_knn(train, vali),
        "LightGBM": best_trees(train, vali),
        "KinRanker": KinRanker(settings={"reference": "best"}),
    }
    values = {"engine, best multi_match": MEASURE.per_query(own, test.grades, test.offsets)}
    for name, ranker in rankers.items():
        values[name] = per_query(ranker.fit(train), test)
        log_progress(f"{name:26} {values[name].mean():.4f}")
    movies = movie_of(test.qid)
    figures = {
        "multi_match chosen on validation": tuned,
        "KNN chosen on validation": repr(rankers["KNN Online"]),
        "LightGBM chosen on validation": repr(rankers["LightGBM"].learner),
        "test queries": len(test),
        "test": table(values, groups=movies),
        "KNN Online against LightGBM": row(values["KNN Online"], values["LightGBM"], movies),
        "KinRanker against LightGBM": row(values["KinRanker"], values["LightGBM"], movies),
    }
    return figures, rankers


def tune_multi_match(vali: QuerySet) -> dict[str, object]:
    """Choose boosts, type and tie breaker by coordinate ascent on the logged scores of the fields."""
    X = vali.X[:, [vali.feature_names.index(field) for field in FIELDS]].astype(np.float64)

    def scores(boosts: list[float], tie: float | None) -> np.ndarray:
        weighted = X * boosts
        if tie is None:
            return weighted.sum(axis=1)
        best = weighted.max(axis=1)
        return best + tie * (weighted.sum(axis=1) - best)

    def value(boosts: list[float], tie: float | None) -> float:
        return MEASURE.mean(scores(boosts, tie), vali.grades, vali.offsets)

    found: dict[str, object] = {"NDCG@10 on validation": 0.0}
    for tie in (0.0, 0.1, 0.3, None):
        boosts = [1.0] * len(FIELDS)
        for _, field in product(range(2), range(len(FIELDS))):
            tried = [[*boosts[:field], boost, *boosts[field + 1 :]] for boost in BOOSTS]
            boosts = max((each for each in tried if any(each)), key=lambda each: value(each, tie))
        reached = value(boosts, tie)
        if reached > found["NDCG@10 on validation"]:
            kind = {"type": "most_fields"} if tie is None else {"type": "best_fields", "tie_breaker": tie}
            fields = [f"{name}^{boost}" for name, boost in zip(FIELDS, boosts, strict=True) if boost]
            found = {"NDCG@10 on validation": round(reached, 4), "fields": fields, **kind}
    return found


def engine_scores(address: str, tuned: dict[str, object], judged: QuerySet, test: QuerySet) -> np.ndarray:
    """Return the engine's scores of the judged documents for the chosen multi_match."""
    kind = ", ".join(f"{name} = {json.dumps(tuned[name])}" for name in ("type", "tie_breaker") if name in tuned)
    features = FeatureSet.parse(f"[features]\nown = {{ multi_match = {json.dumps(tuned['fields'])}, {kind} }}")
    with connect(f"{address}/movies", features, timeout=60.0) as engine:
        parts = [
            part
            for part, _ in FeatureLogger(engine, candidates="judged").log(judged, RetryingPool(WORKERS))
            if part is not None
        ]
    scores = QuerySet.concat(parts)
    assert np.array_equal(scores.doc_id, test.doc_id)
    return scores.X[:, 0].astype(np.float64)


def choose_knn(train: QuerySet, vali: QuerySet) -> KnnRanker:
    """Choose neighbors, kernel and prior on the validation queries."""
    ranker = KnnRanker(400, describe=Describer("summaries+text", reference="best", n_components=46)).fit(train)
    grid = product((100, 200, 400, 800), ("uniform", "gaussian"), (None, 0.02, 0.1))

    def reached(settings: tuple[int, str, float | None]) -> float:
        return float(per_query(ranker.set_params(**knn_settings(*settings)), vali).mean())

    return ranker.set_params(**knn_settings(*max(grid, key=reached)))


def knn_settings(k: int, kernel: str, strength: float | None) -> dict[str, object]:
    """Return the settings of a KNN ranker."""
    prior = {"prior": "none"} if strength is None else {"prior": "global", "prior_strength": strength}
    return {"n_neighbors": min(k, 800), "neighbor_weights": kernel, **prior}


# --- live ------------------------------------------------------------------------------------------------------------


def live(engine: LuceneEngine, ranker: KnnRanker, test: QuerySet, n_queries: int = 300) -> dict[str, object]:
    """Measure the time of a search, and of a search with features, local model and ranking."""
    search, reranked = [], []
    for number, query in enumerate(test[: n_queries + 10]):
        text, vector = str(query.query_columns["text"][0]), query.query_columns["vector"][0]
        calls = {
            "search": lambda text=text, vector=vector: engine.search(text, size=CANDIDATES, vector=vector),
            "re-ranked": lambda text=text, vector=vector: rerank(engine, ranker, text, vector),
        }
        seconds, found = {}, {}
        for name in in_turn(list(calls), number):
            start = time.perf_counter()
            found[name] = calls[name]()
            seconds[name] = time.perf_counter() - start
        if len(found["search"]):
            search.append(seconds["search"])
            reranked.append(seconds["re-ranked"])
    return {"candidates": CANDIDATES, "queries": len(search[10:])} | compared(
        search[10:], reranked[10:], "search", "re-ranked"
    )


def rerank(engine: LuceneEngine, ranker: KnnRanker, text: str, vector: np.ndarray) -> list[str]:
    """Return the engine's candidates, ranked by the model of the query."""
    hits, X = engine.search_features(text, size=CANDIDATES, vector=vector)
    if not len(hits):
        return []
    found = QuerySet.from_arrays(
        X, group=[len(hits)], feature_names=engine.feature_names, query_columns={"vector": vector[None, :]}
    )
    ranked: list[str] = hits.doc_id[np.argsort(-ranker.predict(found), kind="stable")].tolist()
    return ranked


def applied(
    engine: LuceneEngine, rankers: dict[str, Ranker], test: QuerySet, n_queries: int = 1000
) -> dict[str, object]:
    """Check that the engine orders documents as our scores do, and measure the time relative to fixed weights."""
    some = test[:n_queries]
    weights = rankers["KNN Online"].weights(some)
    fixed = rankers["Single RankRLS"].weights(some)
    same, worst, own, global_ = 0, 0.0, [], []
    for number, query in enumerate(some):
        text, vector = str(query.query_columns["text"][0]), query.query_columns["vector"][0]
        ids = query.doc_id.tolist()
        hits = engine.apply(text, weights[number], size=len(ids), vector=vector, doc_ids=ids)
        assert sorted(hits.doc_id.tolist()) == sorted(ids), f"{text!r}: other documents than requested"
        # Compute features again: scores of a fuzzy clause change slightly when segments are merged.
        scores = engine.features(text, ids, vector=vector).astype(np.float64) @ weights[number]
        ranked = scores[[ids.index(doc_id) for doc_id in hits.doc_id.tolist()]]
        # The largest inversion, relative to the range of scores.
        wrong = float(max(0.0, np.max(np.diff(ranked), initial=0.0)) / max(np.ptp(scores), 1e-12))
        same += wrong <= 1e-5
        worst = max(worst, wrong)
        if number < n_queries // 2:
            for times, each in in_turn([(own, weights[number]), (global_, fixed[number])], number):
                start = time.perf_counter()
                engine.apply(text, each, size=CANDIDATES, vector=vector)
                times.append(time.perf_counter() - start)
    orders = {
        "queries": len(some),
        "same order, ties aside": same,
        "worst inversion, of the range": float(f"{worst:.2g}"),
    }
    negative = {"share of negative weights": round(float((weights < 0).mean()), 3)}
    return orders | negative | compared(global_[10:], own[10:], "fixed weights", "own weights")


def compared(baseline: list[float], measured: list[float], first: str, second: str) -> dict[str, object]:
    """Return the percentiles of two calls in milliseconds, and their ratios."""
    figures: dict[str, object] = {}
    for percentile in (50, 99):
        first_ms, second_ms = (float(np.percentile(times, percentile)) * 1000 for times in (baseline, measured))
        figures |= {
            f"{first}, p{percentile} ms": round(first_ms, 2),
            f"{second}, p{percentile} ms": round(second_ms, 2),
            f"added, p{percentile} ms": round(second_ms - first_ms, 2),
            f"ratio, p{percentile}": round(second_ms / first_ms, 3),
        }
    return figures
