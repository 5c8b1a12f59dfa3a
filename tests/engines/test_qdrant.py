"""Per-query weights in a running Qdrant give the order of our scores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from qdrant_client import QdrantClient, models

from kinrank import KnnRanker, QuerySet
from kinrank.engines.targets import TARGETS
from tests.engines.target_cases import CASES

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]
# Each pytest worker has its own server, with two ports.
PORT = 16633 + 2 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
COLLECTION = "movies"
DOCUMENTS, QUERIES, WORDS = 120, 60, 40
FEATURES = ("title", "plot", "words", "votes")
CLAUSES = ("plot", "title", "words")
"""Prefetched features, in a different order than the features."""


@pytest.fixture(scope="module")
def client() -> Iterator[QdrantClient]:
    """Client of a temporary server."""
    script = ROOT / "scripts" / "engine"
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([script, "start", "qdrant", f"--port={PORT}"], check=True, env=environment)
    try:
        # The client is newer than the server, which does not matter for the requests of these tests.
        opened = QdrantClient(url=f"http://127.0.0.1:{PORT}", check_compatibility=False)
        yield opened
        opened.close()
    finally:
        subprocess.run([script, "stop", "qdrant", f"--port={PORT}"], check=True, env=environment)


@dataclass(frozen=True)
class Collection:
    """Judged queries with features computed without the server, and the vectors of the queries."""

    queries: QuerySet
    title: NDArray[np.float32]
    plot: NDArray[np.float32]
    words: list[int]

    def prefetches(self, query: int, **settings: Any) -> dict[str, Any]:
        """Return the clauses of a query."""
        sparse = {"indices": [self.words[query]], "values": [2.0]}
        vectors = {"title": self.title[query].tolist(), "plot": self.plot[query].tolist(), "words": sparse}
        clauses = {name: {"query": vectors[name], "using": name, "limit": DOCUMENTS, **settings} for name in CLAUSES}
        return {**clauses, "votes": "counts.votes"}


@pytest.fixture(scope="module")
def collection(client: QdrantClient) -> Collection:
    """Half of the queries prefer many votes, half prefer few. Every third document has no votes."""
    rng = np.random.default_rng(0)
    title, plot = (_unit(rng.standard_normal((DOCUMENTS, 8))) for _ in range(2))
    words, votes = rng.integers(0, WORDS, DOCUMENTS), rng.uniform(0, 5, DOCUMENTS) * (np.arange(DOCUMENTS) % 3 > 0)
    vectors = {
        "title": models.VectorParams(size=8, distance=models.Distance.COSINE),
        "plot": models.VectorParams(size=8, distance=models.Distance.DOT),
    }
    sparse = {"words": models.SparseVectorParams()}
    client.create_collection(COLLECTION, vectors_config=vectors, sparse_vectors_config=sparse)
    points = [
        models.PointStruct(
            id=document,
            vector={
                "title": title[document].tolist(),
                "plot": plot[document].tolist(),
                "words": models.SparseVector(indices=[int(words[document])], values=[1.5]),
            },
            payload={"counts": {"votes": votes[document]}} if document % 3 else {},
        )
        for document in range(DOCUMENTS)
    ]
    client.upsert(COLLECTION, points, wait=True)
    query_title, query_plot = (_unit(rng.standard_normal((QUERIES, 8))) for _ in range(2))
    query_words = rng.integers(0, WORDS, QUERIES)
    X = np.stack(
        [
            query_title @ title.T,
            query_plot @ plot.T,
            3.0 * (query_words[:, None] == words),
            np.tile(votes, (QUERIES, 1)),
        ],
        axis=-1,
    )
    preferences = np.where(np.arange(QUERIES)[:, None] % 2, [1.0, 3.0, 0.2, 0.3], [3.0, 1.0, 0.5, -0.3])
    y = (np.einsum("qdf,qf->qd", X, preferences) > 1.0).astype(np.float32)
    # Queries are described by their type, so that neighbors have the same type.
    types = (np.arange(QUERIES) % 2).astype(np.float32)[:, None]
    queries = QuerySet.from_arrays(
        X.reshape(-1, 4),
        y.ravel(),
        group=np.full(QUERIES, DOCUMENTS),
        doc_id=np.tile(np.arange(DOCUMENTS), QUERIES),
        feature_names=FEATURES,
        query_columns={"vector": types},
    )
    return Collection(queries, query_title, query_plot, query_words.tolist())


@pytest.fixture(scope="module")
def weights(collection: Collection) -> NDArray[np.float64]:
    """Weights of a local ranker, of both signs for the votes."""
    local: NDArray[np.float64] = KnnRanker(20, describe="text").fit(collection.queries).weights(collection.queries)
    assert local[:, 3].min() < 0 < local[:, 3].max()
    return local


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def ranked(client: QdrantClient, request: dict[str, Any]) -> list[models.ScoredPoint]:
    body = models.QueryRequest.model_validate(request)
    found = client.http.search_api.query_points(collection_name=COLLECTION, query_request=body).result
    assert found is not None
    return found.points


def request_for(collection: Collection, weights: NDArray[np.float64], query: int, **settings: Any) -> dict[str, Any]:
    named = dict(zip(FEATURES, weights[query].tolist(), strict=True))
    made: dict[str, Any] = TARGETS.make(f"qdrant-formula(limit={DOCUMENTS})").request(
        named, collection.prefetches(query, **settings)
    )
    return made


def test_order_is_that_of_our_scores(
    client: QdrantClient, collection: Collection, weights: NDArray[np.float64]
) -> None:
    for query in range(QUERIES):
        expected = collection.queries[query].X @ weights[query]
        points = ranked(client, request_for(collection, weights, query))
        assert sorted(point.id for point in points) == list(range(DOCUMENTS))
        ranked_scores = expected[[point.id for point in points]]
        np.testing.assert_allclose([point.score for point in points], ranked_scores, atol=1e-5)
        assert np.all(np.diff(ranked_scores) <= 1e-5)


def test_filter_restricts_the_ranking_to_candidates(
    client: QdrantClient, collection: Collection, weights: NDArray[np.float64]
) -> None:
    candidates = [3, 14, 15, 92, 65, 35, 89, 79]
    for query in range(0, QUERIES, 10):
        candidates_only = {"filter": {"must": [{"has_id": candidates}]}}
        points = ranked(client, request_for(collection, weights, query, **candidates_only))
        expected = (collection.queries[query].X @ weights[query])[candidates]
        assert [point.id for point in points] == [candidates[place] for place in np.argsort(-expected)]


def test_point_that_a_prefetch_does_not_return_gets_0_from_it(client: QdrantClient, collection: Collection) -> None:
    weights = np.tile([1.0, 1.0, 0.0, 0.0], (QUERIES, 1))
    points = ranked(client, request_for(collection, weights, 0, limit=5))
    X = collection.queries[0].X
    best = {name: set(np.argsort(-X[:, column])[:5].tolist()) for column, name in enumerate(FEATURES[:2])}
    for point in points:
        kept = [X[point.id, column] * (point.id in best[name]) for column, name in enumerate(FEATURES[:2])]
        assert point.score == pytest.approx(sum(kept), abs=1e-5)


def test_server_accepts_the_golden_request(client: QdrantClient) -> None:
    client.create_collection(
        "golden",
        vectors_config={"text": models.VectorParams(size=2, distance=models.Distance.DOT)},
        sparse_vectors_config={"title": models.SparseVectorParams()},
    )
    vector = {"text": [0.5, 0.5], "title": models.SparseVector(indices=[7], values=[2.0])}
    point = models.PointStruct(id=1, vector=vector, payload={"movie": {"votes": 8}})
    client.upsert("golden", [point], wait=True)
    case = CASES["qdrant-formula"]
    request = TARGETS.make(case.spec).request(case.weights, case.clauses)
    body = models.QueryRequest.model_validate(request)
    found = client.http.search_api.query_points(collection_name="golden", query_request=body).result
    assert found is not None
    assert found.points[0].score == pytest.approx(0.5 * 2.0 + 2.0 * 0.5 - 0.25 * 8)
