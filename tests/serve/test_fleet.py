"""Three replicas on one PostgreSQL: a short version of the benchmark ``fleet``."""

from __future__ import annotations

import psycopg  # noqa: F401 - this test needs the extra
import pytest

from benchmarks.fleet import run
from tests.serve.servers import free_port


@pytest.mark.engine
@pytest.mark.alone
def test_fleet_loses_no_acknowledged_judgment_or_click() -> None:
    figures = run("4", port=free_port())
    assert figures["acknowledged"] > 9
    assert figures["of which lost"] == 0
    assert figures["restored over"] > 0
    assert figures["restores noticed"] == 3
    assert figures["replicas that have learned all"] == 3
    assert figures["clicks acknowledged"] > 9
    assert figures["clicks lost"] == 0
    assert figures["clicks counted"] == figures["clicks stored"]
    assert figures["replicas that rank alike"] == 3
    assert set(figures["rankings"]) <= {"ranked", "killed"}
