"""Fixtures: a working directory with data and models, and two ways to run the program."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from kinrank import KnnRanker, SingleRanker
from kinrank.cli import app
from kinrank.data.letor import write_letor
from kinrank.data.parquet import write_parquet
from kinrank.data.queryset import QuerySet
from kinrank.datasets import make_two_camps

Run = Callable[..., Result]


@pytest.fixture(scope="session")
def camps() -> QuerySet:
    """The two-camps data with document ids and the feature names of a LETOR file."""
    queries = make_two_camps(n_queries=60, n_docs=10, seed=0)
    documents = np.array([f"d{row}" for row in range(queries.n_rows)])
    return queries.replace(doc_id=documents, feature_names=("f1", "f2"), query_columns={})


@pytest.fixture(scope="session")
def _prepared(camps: QuerySet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    write_parquet(camps[:40], folder / "train.parquet")
    write_letor(camps[40:], folder / "test.txt")
    camps[40:].save(folder / "test")
    KnnRanker(n_neighbors=5).fit(camps[:40]).save(folder / "knn")
    SingleRanker("rankrls").fit(camps[:40]).save(folder / "single")
    return folder


@pytest.fixture
def workdir(_prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into a folder with train.parquet, test.txt, test/ and the models knn/ and single/."""
    folder = tmp_path / "work"
    shutil.copytree(_prepared, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def kinrank() -> Run:
    """Return a function that runs the program in this process."""
    return lambda *args: CliRunner().invoke(app, [str(arg) for arg in args])


@pytest.fixture
def script() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Return a function that runs the installed program."""
    program = Path(sys.executable).parent / "kinrank"
    return lambda *args: subprocess.run([program, *map(str, args)], capture_output=True, text=True, timeout=120)
