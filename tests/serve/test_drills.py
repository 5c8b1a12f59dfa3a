"""The drills of ``python -m benchmarks drills`` are tests that exist, and docs/project/operations.md lists them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.drills import DRILLS

HERE = Path(__file__).parent
OPERATIONS = HERE.parents[1] / "docs" / "project" / "operations.md"


@pytest.mark.parametrize("name", DRILLS)
def test_drill_runs_tests_that_exist_and_is_documented(name: str):
    for test in DRILLS[name].tests:
        file, _, function = test.partition("::")
        assert re.search(rf"^def {function or 'test_'}", (HERE / file).read_text(), re.M), test
    drill = DRILLS[name]
    assert f"| `{name}`: {drill.failure} | {drill.passes_if} |" in OPERATIONS.read_text()
