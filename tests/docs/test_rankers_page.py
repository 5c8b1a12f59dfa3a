from __future__ import annotations

import re
from pathlib import Path

from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.registry import RANKERS

PAGE = (Path(__file__).parents[2] / "docs" / "rankers.md").read_text()


def test_table_of_capabilities_is_up_to_date():
    capabilities = {name: dict(RANKERS[name]().capabilities) for name in RANKERS}
    assert "| | " + " | ".join(f"`{name}`" for name in RANKERS) + " |" in PAGE
    for capability, meaning in Capabilities.meanings().items():
        cells = ["yes" if capabilities[name][capability] else "" for name in RANKERS]
        assert " | ".join([f"| {meaning}", *cells]) + " |" in PAGE, meaning


def test_every_ranker_is_described():
    assert set(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE)) == set(RANKERS)
