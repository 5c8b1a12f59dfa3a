"""Per-query weights in Qdrant on movie search: the order of our scores, as fast as fixed weights.

MSRD in a running Qdrant (``scripts/engine start qdrant``, done here): a dense vector, two sparse vectors of title and
overview (idf of shared words) and three payload fields (logarithms) are six features, computed here as the server
computes them. Single and KNN Online learn from the judged training queries; for 1,000 test queries the formula query
ranks the judged candidates with the query's own weights and, in turn, with the global ones.
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

from benchmarks.common import data_dir, log_progress, msrd
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
    """NDCG@10 of both rankers, whether the orders agree, and milliseconds of both kinds of request."""
    movies = Movies()
    parts = {part: movies.features(queries) for part, queries in msrd().items()}
    single = SingleRanker("rankrls").fit(parts["train"])
    knn = KnnRanker(reference="title", **KNN).fit(parts["train"])
    quality = {name: per_query(ranker, parts["test"]) for name, ranker in {"Single": single, "KNN": knn}.items()}
    log_progress(f"Single {quality['Single'].mean():.4f}, KNN {quality['KNN'].mean():.4f}")
    asked = parts["test"][np.linspace(0, len(parts["test"]) - 1, QUERIES).astype(np.int64)]
    with server() as client:
        movies.index(client)
        log_progress("indexed")
        with httpx.Client() as http:
            agreement, times = ask(http, movies, asked, knn.weights(asked), single.weights(asked[:1])[0])
    return {
        "quality": {name: row(values, quality["Single"]) for name, values in quality.items()},
        "queries": len(asked),
        "same order": agreement,
        "server, ms": compared(times, "server"),
        "caller, ms": compared(times, "caller"),
    }


def compared(times: dict[str, list[tuple[float, float]]], clock: str) -> dict[str, object]:
    """Both kinds of request by one clock, and their ratio."""
    column = ("caller", "server").index(clock)
    own, fixed = (spread(np.array(times[name][WARM:])[:, column] * 1000) for name in ("own weights", "fixed weights"))
    ratio = {name: round(own[name] / fixed[name], 3) for name in own}
    return {"own weights": own, "fixed weights": fixed, "own against fixed": ratio}


def spread(times: np.ndarray) -> dict[str, float]:
    """The middle and the end of some times."""
    return {"median": round(float(np.median(times)), 3), "p99": round(float(np.quantile(times, 0.99)), 3)}


class Movies:
    """The collection: vectors and fields of each movie, the same for queries, and features from both."""

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
        """The idf of each word of each text."""
        return (self.vectorizer.transform(texts) @ sparse.diags(self.idf)).tocsr()

    def asked(self, queries: QuerySet) -> sparse.csr_matrix:
        """Each word of each query, once."""
        return self.vectorizer.transform([self.texts[str(qid)] for qid in queries.qid.tolist()]).tocsr()

    def features(self, queries: QuerySet) -> QuerySet:
        """The six features of every judged row, as the server computes them."""
        place = np.array([self.position[str(doc)] for doc in queries.doc_id.tolist()])
        query = np.repeat(np.arange(len(queries)), queries.sizes)
        words = self.asked(queries)
        vectors = queries.query_columns["vector"]
        columns = [np.einsum("ij,ij->i", vectors[query], self.dense[place])]
        columns += [
            np.asarray(words[query].multiply(self.sparse[name][place]).sum(axis=1)).ravel() for name in self.sparse
        ]
        columns += [self.fields[field][place] for field in FIELDS]
        return queries.replace(X=np.column_stack(columns).astype(np.float32), feature_names=FEATURES)

    def index(self, client: QdrantClient) -> None:
        """Write all movies; the position of a movie is its id."""
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
        """The clauses of one query, filtered to its candidates."""
        vectors: dict[str, Any] = {"dense": query.query_columns["vector"][0].tolist()}
        vectors |= {name: sparse_vector(words) for name in self.sparse}
        common = {"limit": len(places), "filter": {"must": [{"has_id": places}]}}
        return {name: {"query": vectors[name], "using": name, **common} for name in vectors} | {f: f for f in FIELDS}


def ask(
    http: httpx.Client, movies: Movies, queries: QuerySet, weights: np.ndarray, fixed: np.ndarray
) -> tuple[dict[str, object], dict[str, list[tuple[float, float]]]]:
    """Every query with its own weights and with fixed ones, in turn; each answer against our own scores."""
    times: dict[str, list[tuple[float, float]]] = {"own weights": [], "fixed weights": []}
    worst, same = 0.0, {"own weights": 0, "fixed weights": 0}
    target = TARGETS.make("qdrant-formula(limit=1000)")
    words = movies.asked(queries)
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
    return {**same, "worst inversion, of the spread of scores": float(f"{worst:.1g}")}, times


def timed(http: httpx.Client, request: dict[str, Any]) -> tuple[list[dict[str, Any]], tuple[float, float]]:
    """The points of an answer, and the seconds to it by the caller's clock and by the server's own.

    The caller's hold some 40 ms of waiting for an acknowledgment that neither side sends at once; they say little.
    """
    start = time.perf_counter()
    answer = http.post(f"{URL}/collections/movies/points/query", json=request)
    elapsed = time.perf_counter() - start
    said = answer.raise_for_status().json()
    return said["result"]["points"], (elapsed, said["time"])


def query_texts(folder: Path) -> dict[str, str]:
    """What was asked, by query id."""
    with gzip.open(folder / "movies-judgments.tsv.gz", "rt") as lines:
        next(lines)
        cells = (line.split("\t") for line in lines)
        return {query_id.removeprefix("qid:"): text for query_id, text, *_ in cells}


def sparse_vector(row: sparse.csr_matrix) -> dict[str, list[Any]]:
    """One row as Qdrant takes it."""
    return {"indices": row.indices.tolist(), "values": row.data.tolist()}


@contextmanager
def server() -> Iterator[QdrantClient]:
    """A Qdrant that is gone afterwards."""
    words = [str(ROOT / "scripts" / "engine"), "start", "qdrant", f"--port={PORT}"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    try:
        client = QdrantClient(url=URL, check_compatibility=False, timeout=60)
        yield client
        client.close()
    finally:
        subprocess.run([words[0], "stop", *words[2:]], check=True)
