from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FITTING = """
import sys
from kinrank import CellRanker
from kinrank.datasets import make_intents
from kinrank.describe import Describer
queries = make_intents(3000, 0, n_docs=8, n_features=60, spread=1.0)
CellRanker(60, n_cells=12, describe=Describer("summaries", n_components=20)).fit(queries).save(sys.argv[1])
"""


@pytest.mark.slow
def test_blas_threads_do_not_change_the_model_bytes(tmp_path: Path) -> None:
    models = []
    for threads in ("1", "2"):
        counts = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
        folder = tmp_path / threads
        subprocess.run([sys.executable, "-c", FITTING, folder], check=True, env={**os.environ, **counts}, timeout=300)
        models.append({file.name: file.read_bytes() for file in folder.iterdir()})
    assert models[0] == models[1]
