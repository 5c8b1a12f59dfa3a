"""A node of three is killed with SIGKILL; for OpenSearch see python -m benchmarks engine_faults."""

from __future__ import annotations

import pytest

from benchmarks.engine_faults import survive
from kinrank.engines import connect

ADDRESS = "elasticsearch+http://127.0.0.1:9200,127.0.0.1:9201,127.0.0.1:9202"


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.xdist_group("engine")
def test_logging_ends_complete_and_searches_go_on_while_a_node_is_killed():
    with connect(f"{ADDRESS}/none") as engine:
        cluster = engine._send("GET", "/_cluster/health", {}, None, 10.0)  # type: ignore[attr-defined]
    assert cluster["number_of_nodes"] == 3, "start it with scripts/engine start elasticsearch --nodes 3"
    figures = survive(ADDRESS, "elasticsearch", 9200, n_queries=400)
    assert figures["queries logged"] == figures["queries asked"]
    assert figures["documents logged"] == figures["documents asked"]
    assert figures["same as in peace"] is True
    assert figures["searches answered"] > 0
    assert figures["searches failed"] == []
    # While a copy of a shard dies, the engine answers from the others: a live search takes that, a log asks again.
    assert figures["searches with fewer hits"] <= figures["searches answered"] / 100
