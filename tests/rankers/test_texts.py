"""Rankers that read query texts: no vectors to bring."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import kinrank
from kinrank import KinRanker, KnnRanker, QuerySet
from kinrank.datasets import make_two_camps
from kinrank.errors import DataError, EncoderError
from kinrank.kin.encoders.ngrams import NgramEncoder

WORDS = (("cheap", "phone", "case"), ("best", "movie", "ever"))


def camps_by_text(n_queries: int = 60, seed: int = 0) -> QuerySet:
    """Return two camps that only their texts tell apart: the feature that names the camp is constant."""
    queries = make_two_camps(n_queries=n_queries, seed=seed)
    camp = queries.X[queries.offsets[:-1], 1] > 0
    rng = np.random.default_rng(seed)
    texts = [f"{rng.choice(WORDS[own])} {rng.choice(WORDS[own])} {i % 3}" for i, own in enumerate(camp.astype(int))]
    X = queries.X.copy()
    X[:, 1] = 0.0
    return queries.replace(
        X=X, qid=np.array([f"q{i}" for i in range(n_queries)]), query_columns={"text": np.array(texts)}
    )


RANKERS = {
    "knn": lambda **settings: KnnRanker(10, prior="global", **settings),
    "kin": lambda **settings: KinRanker(10, **settings),
}


@pytest.fixture(params=sorted(RANKERS))
def make(request: pytest.FixtureRequest):
    return RANKERS[request.param]


def test_texts_are_used_without_being_asked_for(make):
    queries = camps_by_text(120)
    train, test = queries[:80], queries[80:]
    without = make(encoder=None).fit(train).score(test)
    assert make().fit(train).score(test) > without + 0.1


def test_texts_come_as_a_column_a_mapping_or_a_list(make):
    queries = camps_by_text()
    train, test = queries[:40], queries[40:]
    ranker = make().fit(train)
    expected = ranker.predict(test)
    texts = test.query_columns["text"].tolist()
    ids = test.qid[test.query_of_row]
    bare = {"X": test.X, "qid": ids}
    frame = make().fit(train.X, train.y, qid=train.qid[train.query_of_row], query_text=train.query_columns["text"])
    np.testing.assert_allclose(frame.predict(**bare, query_text=texts), expected, atol=1e-9)
    by_id = dict(zip(test.qid.tolist(), texts, strict=True))
    np.testing.assert_array_equal(ranker.predict(**bare, query_text=by_id), expected)
    assert len(ranker.explain(**bare, query_text=texts)) == len(test)


def test_a_model_folder_encodes_by_itself(make, tmp_path: Path):
    queries = camps_by_text()
    ranker = make().fit(queries[:40])
    ranker.save(tmp_path / "model", examples=queries[:3])
    np.testing.assert_array_equal(kinrank.load(tmp_path / "model").predict(queries[40:]), ranker.predict(queries[40:]))


def test_vectors_given_take_precedence(make):
    queries = camps_by_text()
    vectors = np.random.default_rng(0).standard_normal((len(queries), 4))
    ranker = make().fit(queries, query_vectors=vectors)
    assert ranker.encoder_ is None
    with pytest.raises(DataError, match="pass query_vectors="):
        ranker.predict(queries)


def test_queries_without_texts_raise(make):
    queries = camps_by_text()
    ranker = make().fit(queries)
    with pytest.raises(DataError, match=r"fitted with query texts .encoder 'ngrams'., and these queries have none"):
        ranker.predict(queries.replace(query_columns={}))
    with pytest.raises(DataError, match=r"must have one text per query .60., in order of first appearance, got 1"):
        ranker.predict(queries.replace(query_columns={}), query_text=["one"])
    with pytest.raises(DataError, match=r"query_text of query .* must be a str, got None"):
        ranker.predict(queries.replace(query_columns={}), query_text={})


class Camps:
    """An encoder that a user brings along."""

    def __init__(self, sign: float = 1.0) -> None:
        self.sign = sign

    def encode(self, texts: list[str]) -> np.ndarray:
        return np.array([[self.sign * (1.0 if "phone" in text or "cheap" in text else -1.0), 1.0] for text in texts])


def test_an_encoder_given_in_python_must_be_given_again(make, tmp_path: Path):
    queries = camps_by_text()
    ranker = make(encoder=Camps()).fit(queries[:40])
    ranker.save(tmp_path / "model")
    alone = kinrank.load(tmp_path / "model")
    with pytest.raises(EncoderError, match=r"load it with kinrank.load"):
        alone.predict(queries[40:])
    again = kinrank.load(tmp_path / "model", encoder=Camps())
    np.testing.assert_array_equal(again.predict(queries[40:]), ranker.predict(queries[40:]))
    with pytest.raises(EncoderError, match="encodes a probe text differently"):
        kinrank.load(tmp_path / "model", encoder=Camps(-1.0))


def test_unjudged_texts_may_teach_the_ngrams(make):
    queries = camps_by_text()
    encoder = NgramEncoder().fit([f"{a} {b}" for camp in WORDS for a in camp for b in camp])
    ranker = make(encoder=encoder).fit(queries[:40])
    assert ranker.encoder_ is encoder
    assert ranker.score(queries[40:]) > 0.9


def test_added_judgments_bring_their_texts():
    queries = camps_by_text()
    ranker = KnnRanker(10, prior="global").fit(queries[:30])
    ranker.add(queries[30:40])
    assert len(ranker.qid_) == 40
    assert ranker.score(queries[40:]) > 0.9
