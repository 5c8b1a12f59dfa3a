"""Per-query weights in a running Qdrant: its order is the order of our own scores."""

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
# Each worker of the test run has a server of its own, with two ports.
PORT = 16633 + 2 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
COLLECTION = "movies"
DOCUMENTS, QUERIES, WORDS = 120, 60, 40
FEATURES = ("title", "plot", "words", "votes")
CLAUSES = ("plot", "title", "words")
"""Prefetches, in another order than the features."""


@pytest.fixture(scope="module")
def client() -> Iterator[QdrantClient]:
    """A server of its own, gone when the tests are done."""
    engine = [ROOT / "scripts" / "engine"]
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run([*engine, "start", "qdrant", f"--port={PORT}"], check=True, env=environment)
    try:
        # The client is newer than the server, which the requests here do not notice.
        opened = QdrantClient(url=f"http://127.0.0.1:{PORT}", check_compatibility=False)
        yield opened
        opened.close()
    finally:
        subprocess.run([*engine, "stop", "qdrant", f"--port={PORT}"], check=True, env=environment)


@dataclass(frozen=True)
class World:
    """Documents and queries whose features are known without the server."""

    queries: QuerySet
    title: NDArray[np.float32]
    plot: NDArray[np.float32]
    words: list[int]

    def prefetches(self, query: int, **settings: Any) -> dict[str, Any]:
        """The clauses of a query."""
        sparse = {"indices": [self.words[query]], "values": [2.0]}
        vectors = {"title": self.title[query].tolist(), "plot": self.plot[query].tolist(), "words": sparse}
        found = {name: {"query": vectors[name], "using": name, "limit": DOCUMENTS, **settings} for name in CLAUSES}
        return {**found, "votes": "counts.votes"}


@pytest.fixture(scope="module")
def world(client: QdrantClient) -> World:
    """Half of the queries want votes, half want none; every third document has no votes at all."""
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
    asked_title, asked_plot = (_unit(rng.standard_normal((QUERIES, 8))) for _ in range(2))
    asked_words = rng.integers(0, WORDS, QUERIES)
    X = np.stack(
        [
            asked_title @ title.T,
            asked_plot @ plot.T,
            3.0 * (asked_words[:, None] == words),
            np.tile(votes, (QUERIES, 1)),
        ],
        axis=-1,
    )
    wants = np.where(np.arange(QUERIES)[:, None] % 2, [1.0, 3.0, 0.2, 0.3], [3.0, 1.0, 0.5, -0.3])
    y = (np.einsum("qdf,qf->qd", X, wants) > 1.0).astype(np.float32)
    # What is known of a query is its type, so that its neighbors are of its type.
    kinds = (np.arange(QUERIES) % 2).astype(np.float32)[:, None]
    queries = QuerySet.from_arrays(
        X.reshape(-1, 4),
        y.ravel(),
        group=np.full(QUERIES, DOCUMENTS),
        doc_id=np.tile(np.arange(DOCUMENTS), QUERIES),
        feature_names=FEATURES,
        query_columns={"vector": kinds},
    )
    return World(queries, asked_title, asked_plot, asked_words.tolist())


@pytest.fixture(scope="module")
def weights(world: World) -> NDArray[np.float64]:
    """Those of a local ranker: of both signs for the votes."""
    found: NDArray[np.float64] = KnnRanker(20, describe="text").fit(world.queries).weights(world.queries)
    assert found[:, 3].min() < 0 < found[:, 3].max()
    return found


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def ranked(client: QdrantClient, request: dict[str, Any]) -> list[models.ScoredPoint]:
    body = models.QueryRequest.model_validate(request)
    found = client.http.search_api.query_points(collection_name=COLLECTION, query_request=body).result
    assert found is not None
    return found.points


def request_for(world: World, weights: NDArray[np.float64], query: int, **settings: Any) -> dict[str, Any]:
    named = dict(zip(FEATURES, weights[query].tolist(), strict=True))
    made: dict[str, Any] = TARGETS.make(f"qdrant-formula(limit={DOCUMENTS})").request(
        named, world.prefetches(query, **settings)
    )
    return made


def test_the_order_is_that_of_our_scores(client: QdrantClient, world: World, weights: NDArray[np.float64]) -> None:
    for query in range(QUERIES):
        ours = world.queries[query].X @ weights[query]
        points = ranked(client, request_for(world, weights, query))
        assert sorted(point.id for point in points) == list(range(DOCUMENTS))
        theirs = ours[[point.id for point in points]]
        np.testing.assert_allclose([point.score for point in points], theirs, atol=1e-5)
        assert np.all(np.diff(theirs) <= 1e-5), "ties aside"


def test_only_the_candidates_are_ranked(client: QdrantClient, world: World, weights: NDArray[np.float64]) -> None:
    candidates = [3, 14, 15, 92, 65, 35, 89, 79]
    for query in range(0, QUERIES, 10):
        only = {"filter": {"must": [{"has_id": candidates}]}}
        points = ranked(client, request_for(world, weights, query, **only))
        ours = (world.queries[query].X @ weights[query])[candidates]
        assert [point.id for point in points] == [candidates[place] for place in np.argsort(-ours)]


def test_what_a_prefetch_did_not_return_scores_nothing_there(client: QdrantClient, world: World) -> None:
    weights = np.tile([1.0, 1.0, 0.0, 0.0], (QUERIES, 1))
    points = ranked(client, request_for(world, weights, 0, limit=5))
    X = world.queries[0].X
    best = {name: set(np.argsort(-X[:, column])[:5].tolist()) for column, name in enumerate(FEATURES[:2])}
    for point in points:
        kept = [X[point.id, column] * (point.id in best[name]) for column, name in enumerate(FEATURES[:2])]
        assert point.score == pytest.approx(sum(kept), abs=1e-5)


def test_this_server_ignores_the_weights_of_ranks(client: QdrantClient, world: World) -> None:
    """Why `qdrant-rrf` says 1.17: an older server answers as if there were none."""
    prefetches = {name: clause for name, clause in world.prefetches(0).items() if name != "votes"}
    one, other = (
        ranked(client, TARGETS.make("qdrant-rrf").request(dict(zip(prefetches, weights, strict=True)), prefetches))
        for weights in ([1.0, 1.0, 1.0], [100.0, 1.0, 0.0])
    )
    assert [point.score for point in one] == [point.score for point in other]


def test_the_golden_request_is_understood(client: QdrantClient) -> None:
    """It names vectors of another collection, so a collection of that form is made for it."""
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
