"""Weights in LanceDB and Milvus Lite, which run in this process, give the order of our scores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pytest
from lancedb.rerankers import LinearCombinationReranker
from numpy.typing import NDArray
from pymilvus import AnnSearchRequest, DataType, MilvusClient, WeightedRanker

from kinrank.data.normalization import normalize
from kinrank.engines.targets import TARGETS

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

DOCUMENTS, WORDS = 60, ("heat", "alien", "night", "rain", "city")


@pytest.fixture(scope="module")
def documents() -> list[dict[str, Any]]:
    """Movies with some words and a vector each."""
    rng = np.random.default_rng(0)
    return [
        {
            "id": number,
            "text": " ".join(rng.choice(WORDS, rng.integers(2, 9))),
            "vector": unit(rng.standard_normal(8)).tolist(),
            "other": unit(rng.standard_normal(8)).tolist(),
        }
        for number in range(DOCUMENTS)
    ]


def unit(vector: NDArray[Any]) -> NDArray[np.float32]:
    scaled: NDArray[np.float32] = (vector / np.linalg.norm(vector)).astype(np.float32)
    return scaled


def assert_descending(scores: NDArray[Any], tolerance: float) -> None:
    assert np.all(np.diff(scores) <= tolerance)


@pytest.mark.parametrize("weight", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_lancedb_ranks_by_the_weighted_sum_of_normalized_scores(
    documents: list[dict[str, Any]], tmp_path: Path, weight: float
) -> None:
    table = lancedb.connect(tmp_path).create_table("movies", documents)
    table.create_fts_index("text")
    vector = np.eye(8, dtype=np.float32)[0]
    searched = table.search("heat night", query_type="fts").limit(DOCUMENTS).to_list()
    bm25 = {row["id"]: row["_score"] for row in searched}
    # LanceDB's distance is the squared Euclidean one; the feature is its negative.
    nearness = {row["id"]: -float(np.sum((np.array(row["vector"]) - vector) ** 2)) for row in documents}
    X = np.array([[bm25.get(number, np.nan), nearness[number]] for number in range(DOCUMENTS)])
    expected = normalize(X, np.array([0, DOCUMENTS]), "min_max") @ [1.0 - weight, weight]
    request = TARGETS.make(f"lancedb-hybrid(limit={DOCUMENTS})").request(
        {"keyword": 1.0 - weight, "vector": weight},
        {"keyword": {"text": "heat night"}, "vector": {"vector": vector.tolist()}},
        normalization="min_max",
    )
    query = table.search(query_type="hybrid").vector(request["vector"]).text(request["text"])
    hits = query.rerank(LinearCombinationReranker(**request["reranker"])).limit(request["limit"]).to_list()
    assert len(hits) == DOCUMENTS
    # Our lowest normalized score is 0.001, as in OpenSearch, LanceDB's is 0.
    np.testing.assert_allclose(
        [hit["_relevance_score"] for hit in hits], expected[[h["id"] for h in hits]], atol=0.0011
    )
    assert_descending(expected[[hit["id"] for hit in hits]], 0.0011)


def test_milvus_ranks_by_the_weighted_sum(documents: list[dict[str, Any]], tmp_path: Path) -> None:
    client = MilvusClient(str(tmp_path / "milvus.db"))
    schema = client.create_schema()
    schema.add_field("id", DataType.INT64, is_primary=True)
    indexes = client.prepare_index_params()
    for name, metric in (("vector", "COSINE"), ("other", "IP")):
        schema.add_field(name, DataType.FLOAT_VECTOR, dim=8)
        indexes.add_index(name, index_type="FLAT", metric_type=metric)
    client.create_collection("movies", schema=schema, index_params=indexes)
    client.insert("movies", [{key: row[key] for key in ("id", "vector", "other")} for row in documents])
    rng = np.random.default_rng(1)
    for _ in range(10):
        queries = {name: unit(rng.standard_normal(8)) for name in ("vector", "other")}
        weights = {name: float(weight) for name, weight in zip(queries, rng.uniform(0.0, 5.0, 2), strict=True)}
        clauses = {
            name: {"data": [query.tolist()], "annsField": name, "limit": DOCUMENTS} for name, query in queries.items()
        }
        request = TARGETS.make(f"milvus-weighted(collection='movies', limit={DOCUMENTS})").request(weights, clauses)
        params = request["rerank"]["params"]
        searches = [AnnSearchRequest(each["data"], each["annsField"], {}, each["limit"]) for each in request["search"]]
        ranker = WeightedRanker(*params["weights"], norm_score=params["norm_score"])
        found = client.hybrid_search(request["collectionName"], searches, ranker, limit=request["limit"])[0]
        X = np.array([[np.dot(row[name], query) for name, query in queries.items()] for row in documents])
        expected = (X @ list(weights.values()))[[hit["id"] for hit in found]]
        assert len(found) == DOCUMENTS
        np.testing.assert_allclose([hit["distance"] for hit in found], expected / max(weights.values()), atol=1e-5)
        assert_descending(expected, 1e-5)
    client.close()
