from __future__ import annotations

import re
from pathlib import Path

from kinrank.rankers.registry import RANKERS

PAGE = (Path(__file__).parents[2] / "docs" / "rankers.md").read_text()


def test_every_ranker_is_described():
    assert set(re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE)) == set(RANKERS)
