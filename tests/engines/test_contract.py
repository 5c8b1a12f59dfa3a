from __future__ import annotations

import numpy as np
import pytest

from kinrank.engines.lucene import LuceneEngine
from kinrank.errors import EngineRefusedError
from tests.engines.conftest import OpenEngine, index_body
from tests.engines.engine_checks import EngineCheck, engine_checks
from tests.engines.engine_sample import QUERY, VECTOR, sample_documents

pytestmark = pytest.mark.engine


@pytest.mark.parametrize("shards", [1, 3])
def test_engine_passes_all_checks(engine_name: str, open_engine: OpenEngine, shards: int):
    engine = open_engine(engine_name)
    engine.index(sample_documents(), settings=index_body(engine_name, shards=shards))
    failures = [f"{check.__name__}: {error}" for check in engine_checks() if (error := _error_of(check, engine))]
    assert failures == []


def test_query_without_matches_has_no_rows(engine_name: str, open_engine: OpenEngine):
    engine = open_engine(engine_name)
    engine.index(sample_documents(), settings=index_body(engine_name))
    hits, X = engine.search_features("zebra", size=9, vector=VECTOR)
    assert len(hits) == 0
    assert X.shape == (0, len(engine.feature_names))


def _error_of(check: EngineCheck, engine: object) -> AssertionError | None:
    try:
        check(engine)  # type: ignore[arg-type]
    except AssertionError as error:
        return error
    return None


def test_alias_of_indexes_with_the_same_ids_loses_no_document(engine_name: str, open_engine: OpenEngine):
    first, second = open_engine(engine_name), open_engine(engine_name)
    documents = sample_documents()
    first.index(documents[:30], settings=index_body(engine_name))
    second.index(documents[20:], settings=index_body(engine_name))
    alias = f"{first.index_name},{second.index_name}"
    plain = open_alias(open_engine, engine_name, alias)
    with pytest.raises(EngineRefusedError, match=r"several documents with the id 'd2\d'.*ids='index/id'"):
        plain.search_features(QUERY, size=50, vector=VECTOR)
    with pytest.raises(EngineRefusedError, match="several documents with the id 'd20'"):
        plain.log(QUERY, ["d1", "d20"], vector=VECTOR)
    assert len(plain.search(QUERY, size=50, vector=VECTOR)) > 0  # the engine's order is still there
    engine = open_alias(open_engine, engine_name, alias, ids="index/id")
    hits, X = engine.search_features(QUERY, size=50, vector=VECTOR)
    ids = hits.doc_id.tolist()
    assert len(set(ids)) == len(ids) == hits.total["value"]
    assert any(ids.count(doc_id.replace(first.index_name, second.index_name)) == 1 for doc_id in ids)
    np.testing.assert_allclose(X, engine.features(QUERY, ids, vector=VECTOR), atol=1e-6)
    logged = engine.log(
        QUERY, [f"{first.index_name}/d20", f"{second.index_name}/d20", f"{second.index_name}/d1"], vector=VECTOR
    )
    assert logged.found.tolist() == [True, True, False]
    some = ids[::2]
    weights = np.random.default_rng(0).normal(size=X.shape[1])
    ranked = engine.apply(QUERY, weights, size=50, vector=VECTOR, doc_ids=some).doc_id.tolist()
    assert sorted(ranked) == sorted(some)


def open_alias(open_engine: OpenEngine, name: str, indexes: str, **options: str) -> LuceneEngine:
    engine = open_engine(name, **options)
    engine.index_name = indexes  # a list of indexes is searched as an alias is
    return engine
