from __future__ import annotations

import pytest

from kinrank.checks import engine_checks
from kinrank.checks.engine_sample import VECTOR, sample_documents
from kinrank.checks.engines import EngineCheck
from tests.engines.conftest import OpenEngine, index_body

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engine")]


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
