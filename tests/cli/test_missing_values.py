from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank.data.delimited import write_csv
from kinrank.data.queryset import QuerySet
from kinrank.registry import import_extra

COUNTS = "40 of 800 feature values are missing (f1: 40)"


@pytest.mark.parametrize(
    ("command", "filled"),
    [
        ("train holes.csv --model m --ranker knn --set n_neighbors=5", "fill in the mean"),
        ("train holes.csv --model m --ranker knn --set missing=zero", "fill in 0"),
        ("train holes.csv --model m --ranker single", "fill in the mean"),
        ("compare holes.csv single() knn() --folds 2 --no-ladder", "fill in the mean"),
        ("headroom holes.csv --linear --folds 2", "fill in the mean"),
        ("report test single() knn() --train holes.csv --out r.html", "fill in the mean"),
    ],
)
def test_every_command_fills_missing_values_and_counts_them(
    kinrank, camps: QuerySet, workdir: Path, command: str, filled: str
):
    X = camps.X[:400].copy()
    X[::10, 0] = np.nan
    write_csv(camps[:40].replace(X=X), "holes.csv")
    if command.startswith("report"):
        import_extra("jinja2", "report")
    done = kinrank(*command.split())
    assert done.exit_code == 0, done.stderr
    assert done.stderr.count(COUNTS) == 1
    assert filled in done.stderr


def test_missing_values_are_refused_on_request(kinrank, camps: QuerySet, workdir: Path):
    X = camps.X[:400].copy()
    X[::10, 0] = np.nan
    write_csv(camps[:40].replace(X=X), "holes.csv")
    done = kinrank("train", "holes.csv", "--model", "m", "--ranker", "knn", "--set", "missing=error")
    assert done.exit_code == 2
    assert "--set missing=mean on the command line" in done.stderr
