"""The client of Cohere against a started service; `scripts/rerank_clients` checks those that are heavy to install."""

from __future__ import annotations

import gc
import runpy
from pathlib import Path

import pytest

from tests.serve.servers import serving

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the packages that are checked
def test_cohere_knows_the_answers(tmp_path: Path):
    script = runpy.run_path(str(ROOT / "scripts" / "rerank_clients"))
    with serving(tmp_path / "log", "--memory", str(tmp_path / "memory.db"), "--deadline", "60000") as server:
        script["check"]("cohere", f"http://127.0.0.1:{server.port}")
    gc.collect()  # its clients leave connections open, for which the next test would be blamed
