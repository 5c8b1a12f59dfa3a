from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from kinrank.datasets import make_two_camps
from kinrank.learn.lambdamart import LambdaMART
from kinrank.parallel import Threads, map_ordered, usable_threads, use_threads
from kinrank.registry import import_extra
from tests.processes import PATIENCE

FITTING = """
import sys
from kinrank import CellRanker
from kinrank.datasets import make_intents
from kinrank.kin import Describer
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
        models.append({file.name: file.read_bytes() for file in folder.rglob("*.*")})
    assert models[0] == models[1]


def openmp_threads(monkeypatch: pytest.MonkeyPatch, model: LambdaMART, n_queries: int, n_features: int) -> set[int]:
    """Return how many threads LightGBM trains with; they are not kept with the model."""
    lightgbm = import_extra("lightgbm", "lightgbm")
    train, seen = lightgbm.train, set()

    def watched(settings: dict[str, int], *args: object, **kwargs: object) -> object:
        seen.add(settings["num_threads"])
        return train(settings, *args, **kwargs)

    monkeypatch.setattr(lightgbm, "train", watched)
    camps = make_two_camps(n_queries=n_queries, seed=0)
    X = np.tile(camps.X[:, :1], (1, n_features))
    model.fit(camps.replace(X=X, feature_names=()))
    assert f"[num_threads: {model.n_threads}]" in model.text
    return seen


def test_threads_follow_the_size_of_the_data(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert usable_threads() == 2
    assert openmp_threads(monkeypatch, LambdaMART(1), 20, 2) == {1}
    assert openmp_threads(monkeypatch, LambdaMART(1), 500, 1000) == {2}
    with use_threads(1):
        assert usable_threads() == 1
        assert openmp_threads(monkeypatch, LambdaMART(1), 500, 1000) == {1}
    assert openmp_threads(monkeypatch, LambdaMART(1, n_threads=2), 20, 2) == {2}


def test_a_limit_holds_in_its_own_thread_and_in_those_it_starts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    limited, looked = threading.Event(), threading.Event()

    def limit() -> None:
        with use_threads(1):
            limited.set()
            assert looked.wait(PATIENCE)

    other = threading.Thread(target=limit)
    other.start()
    assert limited.wait(PATIENCE)
    seen = usable_threads()
    looked.set()
    other.join()
    assert seen == 2
    with use_threads(3):
        assert list(map_ordered(Threads(2), lambda _: usable_threads(), [0, 1])) == [3, 3]
    assert usable_threads() == 2


def test_waiting_threads_do_not_spin(tmp_path: Path):
    """OpenMP prints its settings when LightGBM loads it."""
    import_extra("lightgbm", "lightgbm")  # the test is skipped without it
    code = "from kinrank.registry import import_extra; import_extra('lightgbm', 'lightgbm')"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "OMP_DISPLAY_ENV": "true"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in done.stderr
