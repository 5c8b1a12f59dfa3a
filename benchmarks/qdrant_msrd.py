"""Rank movie search in Qdrant with per-query weights: the order of our scores, as fast as fixed weights.

The benchmark starts a Qdrant server and indexes MSRD. A dense vector, two sparse vectors of title and overview (idf of
shared words) and three payload fields (logarithms) give six features, computed here as the server does. Single and KNN
Online learn from the judged training queries. For 1,000 test queries, the formula query ranks the judged candidates
with per-query weights and with the global weights, in turns.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from qdrant_client import QdrantClient, models
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from benchmarks.common import data_dir, log_progress, movie_of, msrd
from benchmarks.knn_msrd import per_query, row
from kinrank import KnnRanker, QuerySet, SingleRanker
from kinrank.engines.targets import TARGETS

ROOT = Path(__file__).parents[1]
PORT = 16733
URL = f"http://127.0.0.1:{PORT}"
QUERIES = 1000
WARM = 50
FIELDS = ("votes", "rating", "popularity")
FEATURES = ("dense", "title", "overview", *FIELDS)
KNN = {"n_neighbors": 400, "neighbor_weights": "gaussian", "describe": "summaries+text", "prior": "global"}


def run() -> dict[str, object]:
    """Measure NDCG@10 of both rankers, agreement of the orders, and times of both kinds of requests."""
    movies = Movies()
    parts = {part: movies.features(queries) for part, queries in msrd().items()}
    single = SingleRanker("rankrls").fit(parts["train"])
    knn = KnnRanker(reference="title", **KNN).fit(parts["train"])
    quality = {name: per_query(ranker, parts["test"]) for name, ranker in {"Single": single, "KNN": knn}.items()}
    log_progress(f"Single {quality['Single'].mean():.4f}, KNN {quality['KNN'].mean():.4f}")
    some = parts["test"][np.linspace(0, len(parts["test"]) - 1, QUERIES).astype(np.int64)]
    with server() as client:
        movies.index(client)
        log_progress("indexed")
        with httpx.Client() as http:
            agreement, times = send_all(http, movies, some, knn.weights(some), single.weights(some[:1])[0])
    return {
        "quality": {
            name: row(values, quality["Single"], movie_of(parts["test"].qid)) for name, values in quality.items()
        },
        "queries": len(some),
        "same order": agreement,
        "server, ms": compared(times, "server"),
        "caller, ms": compared(times, "caller"),
    }


def compared(times: dict[str, list[tuple[float, float]]], clock: str) -> dict[str, object]:
    """Return the times of both kinds of requests by one clock, and their ratio."""
    column = ("caller", "server").index(clock)
    own, fixed = (
        percentiles(np.array(times[name][WARM:])[:, column] * 1000) for name in ("own weights", "fixed weights")
    )
    ratio = {name: round(own[name] / fixed[name], 3) for name in own}
    return {"own weights": own, "fixed weights": fixed, "own against fixed": ratio}


def percentiles(times: np.ndarray) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    return {"median": round(float(np.median(times)), 3), "p99": round(float(np.quantile(times, 0.99)), 3)}


class Movies:
    """Vectors and fields of movies and queries, and the features computed from both."""

    def __init__(self) -> None:
        folder = data_dir() / "text" / "msrd"
        with gzip.open(folder / "movies-corpus.jsonl.gz", "rt") as lines:
            corpus = [json.loads(line) for line in lines]
        self.position = {str(movie["id"]): place for place, movie in enumerate(corpus)}
        self.dense = np.load(folder / "doc_vectors.f16.npy").astype(np.float32)
        self.vectorizer = CountVectorizer(binary=True, dtype=np.float32, token_pattern=r"(?u)\b\w+\b")
        overviews = [movie.get("overview") or "" for movie in corpus]
        titles = [movie.get("title") or "" for movie in corpus]
        counts = self.vectorizer.fit_transform([f"{t} {o}" for t, o in zip(titles, overviews, strict=True)])
        self.idf = np.log(len(corpus) / np.asarray(counts.sum(axis=0)).ravel()).astype(np.float32)
        self.sparse = {"title": self.words(titles), "overview": self.words(overviews)}
        self.fields = {
            field: np.array([np.log1p(float(movie.get(field) or 0.0)) for movie in corpus], dtype=np.float32)
            for field in FIELDS
        }
        self.texts = query_texts(folder)

    def words(self, texts: list[str]) -> sparse.csr_matrix:
        """Return the idf of each word of each text."""
        return (self.vectorizer.transform(texts) @ sparse.diags(self.idf)).tocsr()

    def query_words(self, queries: QuerySet) -> sparse.csr_matrix:
        """Return the distinct words of each query."""
        return self.vectorizer.transform([self.texts[str(qid)] for qid in queries.qid.tolist()]).tocsr()

    def features(self, queries: QuerySet) -> QuerySet:
        """Compute the six features of every judged document, as the server does."""
        place = np.array([self.position[str(doc)] for doc in queries.doc_id.tolist()])
        query = np.repeat(np.arange(len(queries)), queries.sizes)
        words = self.query_words(queries)
        vectors = queries.query_columns["vector"]
        columns = [np.einsum("ij,ij->i", vectors[query], self.dense[place])]
        columns += [
            np.asarray(words[query].multiply(self.sparse[name][place]).sum(axis=1)).ravel() for name in self.sparse
        ]
        columns += [self.fields[field][place] for field in FIELDS]
        return queries.replace(X=np.column_stack(columns).astype(np.float32), feature_names=FEATURES)

    def index(self, client: QdrantClient) -> None:
        """Index all movies. The position of a movie is its id."""
        client.create_collection(
            "movies",
            vectors_config={"dense": models.VectorParams(size=self.dense.shape[1], distance=models.Distance.DOT)},
            sparse_vectors_config={name: models.SparseVectorParams() for name in self.sparse},
        )
        points = (
            models.PointStruct(
                id=place,
                vector={"dense": self.dense[place].tolist()}
                | {name: models.SparseVector(**sparse_vector(rows[place])) for name, rows in self.sparse.items()},
                payload={field: float(values[place]) for field, values in self.fields.items()},
            )
            for place in range(len(self.dense))
        )
        client.upload_points("movies", points, batch_size=512, wait=True)

    def clauses(self, query: QuerySet, words: sparse.csr_matrix, places: list[int]) -> dict[str, Any]:
        """Return the clauses of a query, filtered to its candidates."""
        vectors: dict[str, Any] = {"dense": query.query_columns["vector"][0].tolist()}
        vectors |= {name: sparse_vector(words) for name in self.sparse}
        common = {"limit": len(places), "filter": {"must": [{"has_id": places}]}}
        return {name: {"query": vectors[name], "using": name, **common} for name in vectors} | {f: f for f in FIELDS}


def send_all(
    http: httpx.Client, movies: Movies, queries: QuerySet, weights: np.ndarray, fixed: np.ndarray
) -> tuple[dict[str, object], dict[str, list[tuple[float, float]]]]:
    """Send every query with its own and with fixed weights, and compare the orders with our scores."""
    times: dict[str, list[tuple[float, float]]] = {"own weights": [], "fixed weights": []}
    worst, same = 0.0, {"own weights": 0, "fixed weights": 0}
    target = TARGETS.make("qdrant-formula(limit=1000)")
    words = movies.query_words(queries)
    for number, query in enumerate(queries):
        places = [movies.position[str(doc)] for doc in query.doc_id.tolist()]
        clauses = movies.clauses(query, words[number], places)
        turns = {"own weights": weights[number], "fixed weights": fixed}
        for name in turns if number % 2 else reversed(turns):
            request = target.request(dict(zip(FEATURES, turns[name].tolist(), strict=True)), clauses)
            found, elapsed = timed(http, request)
            times[name].append(elapsed)
            scores = dict(zip(places, query.X @ turns[name], strict=True))
            theirs = np.array([scores[point["id"]] for point in found])
            gap = float(np.max(np.diff(theirs), initial=0.0) / max(1e-9, np.ptp(theirs)))
            worst = max(worst, gap)
            same[name] += len(found) == len(set(places)) and gap < 1e-5
    return {**same, "worst inversion, of the range of scores": float(f"{worst:.1g}")}, times


def timed(http: httpx.Client, request: dict[str, Any]) -> tuple[list[dict[str, Any]], tuple[float, float]]:
    """Return the points of the response, and the seconds it took for the caller and in the server.

    The caller's time includes about 40 ms of delayed acknowledgment, so it is less informative.
    """
    start = time.perf_counter()
    response = http.post(f"{URL}/collections/movies/points/query", json=request)
    elapsed = time.perf_counter() - start
    body = response.raise_for_status().json()
    return body["result"]["points"], (elapsed, body["time"])


def query_texts(folder: Path) -> dict[str, str]:
    """Return the texts of queries by query id."""
    with gzip.open(folder / "movies-judgments.tsv.gz", "rt") as lines:
        next(lines)
        cells = (line.split("\t") for line in lines)
        return {query_id.removeprefix("qid:"): text for query_id, text, *_ in cells}


def sparse_vector(row: sparse.csr_matrix) -> dict[str, list[Any]]:
    """Return a row in the form of Qdrant."""
    return {"indices": row.indices.tolist(), "values": row.data.tolist()}


@contextmanager
def server() -> Iterator[QdrantClient]:
    """Run a temporary Qdrant server."""
    script, options = str(ROOT / "scripts" / "engine"), ["qdrant", f"--port={PORT}"]
    subprocess.run([script, "start", *options], check=True, stdout=subprocess.DEVNULL)
    try:
        client = QdrantClient(url=URL, check_compatibility=False, timeout=60)
        yield client
        client.close()
    finally:
        subprocess.run([script, "stop", *options], check=True)
