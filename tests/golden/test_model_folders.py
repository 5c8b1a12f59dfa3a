"""Model folders of earlier versions: each is loaded, and ranks its stored examples as it did when it was written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank.store import read_model_and_examples

FOLDERS = sorted(Path(__file__).parent.glob("models/*/*"))


def test_there_are_folders_of_the_most_used_rankers() -> None:
    assert {folder.name for folder in FOLDERS} >= {"kin", "knn", "cells", "single", "lambdamart"}


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: f"{folder.parent.name}-{folder.name}")
def test_an_older_folder_ranks_as_it_did(folder: Path) -> None:
    ranker = kinrank.load(folder)
    _, examples = read_model_and_examples(folder)
    assert examples is not None
    queries, scores = examples
    np.testing.assert_allclose(ranker.predict(queries), scores, rtol=1e-5, atol=1e-6)
