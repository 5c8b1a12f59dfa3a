"""Searches of a running engine with documents that people chose: in the service, and in the engine's own request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank import KinRanker, QuerySet
from kinrank.engines._query_dsl import SearchOptions
from kinrank.engines.lucene import LuceneEngine
from kinrank.memory.evidence import Evidence
from kinrank.serve import Service, Settings
from kinrank.serve._search import Searcher
from tests.engines.conftest import OpenEngine, index_body
from tests.engines.engine_sample import QUERY, VECTOR, sample_documents

pytestmark = pytest.mark.engine
QUERIES = [QUERY, "blue house", "old boat", "fast tree"]
REPEATED = 6  # with other grades, so that they cannot be learned by heart
MISSED = ["m0", "m1"]
DOCUMENTS = [*sample_documents(), *((name, {"title": "quiet lake", "body": "calm", "votes": 3}) for name in MISSED)]


def choice_model(engine: LuceneEngine, chosen: list[str], ignored: str) -> KinRanker:
    """Return a linear model, and the choices of 40 people: of some documents, and not of another."""
    ids = [doc_id for doc_id, _ in DOCUMENTS]
    X = np.concatenate([engine.features(text, ids, vector=VECTOR) for text in QUERIES] * REPEATED)
    queries = QuerySet.from_arrays(
        X,
        np.random.default_rng(0).integers(0, 3, len(X)),
        qid=np.repeat(range(len(QUERIES) * REPEATED), len(ids)),
        doc_id=ids * len(QUERIES) * REPEATED,
        query_columns={
            "text": [f"{text} {number}" for number in range(REPEATED) for text in QUERIES],
            "vector": np.random.default_rng(1).normal(VECTOR, 0.1, (len(QUERIES) * REPEATED, len(VECTOR))),
        },
        feature_names=engine.feature_names,
    )
    choices = [399.0 - 60 * place for place in range(len(chosen))] + [0.0]
    evidence = Evidence.from_cells([QUERY] * len(choices), [*chosen, ignored], [400.0] * len(choices), choices)
    return KinRanker(evidence=evidence, encoder=None, memory=False, local=False, settings={"missing": "zero"}).fit(
        queries
    )


def test_remembered_documents_are_found_and_ranked_alike_in_both_ways(
    engine_name: str, open_engine: OpenEngine, tmp_path: Path
):
    engine = open_engine(engine_name)
    engine.index(DOCUMENTS, settings=index_body(engine_name))
    every = engine.search(QUERY, size=40, vector=VECTOR).doc_id.tolist()
    first = every[:5]
    choice_model(engine, [MISSED[0], first[4], MISSED[1], "gone"], first[0]).save(tmp_path / "model")
    vector = np.array(VECTOR, dtype=np.float32)
    patient = Settings(deadline=60.0, engine_seconds=60.0, max_novelty=1e9)
    with Service({"default": tmp_path / "model"}, settings=patient) as service:
        searcher = Searcher(service, engine)
        result = searcher.search(QUERY, window=5, vector=vector)
        assert (result.remembered, result.engine_ids) == (MISSED, [*first, *MISSED])
        assert result.ranking.ids[0] == MISSED[0]
        assert result.hits.total == {"value": len(every), "relation": "eq"}
        allowed = SearchOptions({"ids": {"values": [*first, MISSED[1]]}})
        assert searcher.search(QUERY, window=5, vector=vector, options=allowed).remembered == [MISSED[1]]

        # The engine's own request has the same documents in the same order.
        found = searcher.weights(QUERY, size=7, window=5, vector=vector)
        assert (found.boosts or {}).keys() == {MISSED[0], first[4], MISSED[1], first[0]}
        response = engine._send("POST", f"/{engine.index_name}/_search", found.params or {}, found.request, 60.0)
        assert [hit["_id"] for hit in response["hits"]["hits"]] == result.ranking.ids
        assert response["hits"]["total"]["value"] == len(every) + 2
        assert searcher.weights("old boat", size=7, vector=vector).boosts is None
