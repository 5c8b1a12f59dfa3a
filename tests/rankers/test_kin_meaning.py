"""Kin by meaning in `KinRanker`: kept where vectors say more than letters, and letters alone if the encoder is down."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest

import kinrank
from kinrank import KinRanker, QuerySet
from kinrank.errors import DataError, EncoderError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.memory.columns import MEANING

FEW = LambdaMART(30, n_leaves=7, min_rows_in_leaf=5)
N_TOPICS = 16


class Meanings:
    """Knows what the words of `world` mean; fails if it is `down`, and takes its time if it is `slow`."""

    def __init__(self, width: int = 12) -> None:
        self.directions = np.random.default_rng(7).normal(size=(N_TOPICS, width))
        self.down = False
        self.slow = 0.0

    def encode(self, texts: list[str]) -> np.ndarray:
        """Return the direction of the topic of each text, with some noise of its own."""
        if self.down:
            raise ConnectionError("nobody answers")
        time.sleep(self.slow)
        vectors = []
        for text in texts:
            topic = int(text, 36) % N_TOPICS if text.isascii() and text.isalnum() else 0
            noise = np.random.default_rng(crc32(text.encode())).normal(size=self.directions.shape[1])
            vectors.append(self.directions[topic] + 0.1 * noise)
        return np.array(vectors)


def world(n_queries: int = 200, seed: int = 0) -> QuerySet:
    """Return queries of one word that nobody repeats; queries of a topic want one document, and only meaning tells."""
    rng = np.random.default_rng(seed)
    numbers = rng.permutation(np.unique(rng.integers(36**5, 36**6, 2 * n_queries)))[:n_queries]
    texts = [np.base_repr(number, 36).lower() for number in numbers]
    topic = numbers % N_TOPICS
    documents = np.array(
        [rng.permuted([own, *rng.permutation(np.delete(np.arange(N_TOPICS), own))[:6]]) for own in topic]
    )
    grades = documents == topic[:, None]
    return QuerySet.from_arrays(
        rng.normal(size=(grades.size, 2)) + 0.3 * grades.reshape(-1, 1),
        grades.ravel().astype(float),
        qid=np.repeat(np.arange(n_queries), 7),
        doc_id=[f"d{number}" for number in documents.ravel()],
        query_columns={"text": texts},
        doc_columns={"brand": [f"b{number // 4}" for number in documents.ravel()]},
    )


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    return world()


@pytest.fixture
def encoder() -> Meanings:
    return Meanings()


@pytest.fixture(scope="module")
def fitted(queries: QuerySet) -> KinRanker:
    return KinRanker(keys=["brand"], encoder=Meanings(), trees=FEW, settings={"n_repeats": 1}).fit(queries[:150])


@pytest.fixture
def ranker(fitted: KinRanker, encoder: Meanings) -> KinRanker:
    """The fitted ranker with an encoder of its own."""
    made = fitted.copy()
    assert fitted.guard_ is not None
    made.encoder_ = kinrank.kin.encoders.make_encoder(encoder)
    made.guard_ = type(fitted.guard_)(made.encoder_, fitted.guard_.width)
    return made


def test_kin_by_meaning_are_kept_where_letters_say_nothing(queries: QuerySet, ranker: KinRanker):
    kept = {record.part: record.kept for record in ranker.parts_}
    assert kept["kin by meaning"]
    assert not kept["kin"]
    assert any(remark.startswith("kin by meaning: kept, +") for remark in ranker.remarks())
    letters = KinRanker(keys=["brand"], trees=FEW, settings={"n_repeats": 1}).fit(queries[:150])
    assert "kin by meaning" not in {record.part for record in letters.parts_}
    assert ranker.score(queries[150:]) > letters.score(queries[150:]) + 0.2


def test_given_vectors_count_as_an_encoder_does(queries: QuerySet, ranker: KinRanker, encoder: Meanings):
    vectors = encoder.encode(queries.query_columns["text"].tolist()).astype(np.float32)
    given = queries.replace(query_columns={**queries.query_columns, "vector": vectors})
    by_vectors = KinRanker(keys=["brand"], trees=FEW, settings={"n_repeats": 1}).fit(given[:150])
    assert by_vectors.guard_ is None
    assert by_vectors.score(given[150:]) == pytest.approx(ranker.score(queries[150:]), abs=0.05)
    narrow = given.replace(query_columns={**given.query_columns, "vector": vectors[:, :5]})
    with pytest.raises(DataError, match="vectors of 12 numbers, and these have 5: use the encoder"):
        by_vectors.predict(narrow)


def test_a_model_folder_keeps_kin_by_meaning(queries: QuerySet, ranker: KinRanker, tmp_path: Path):
    ranker.save(tmp_path / "model")
    loaded = kinrank.load(tmp_path / "model", encoder=Meanings())
    np.testing.assert_array_equal(loaded.predict(queries[150:]), ranker.predict(queries[150:]))
    with pytest.raises(EncoderError, match="encodes a probe text differently"):
        kinrank.load(tmp_path / "model", encoder=Meanings(13))


def test_a_dead_encoder_leaves_kin_by_letters(queries: QuerySet, ranker: KinRanker, encoder: Meanings):
    new = queries[150:]
    alive = ranker.predict(new)
    encoder.down = True
    with pytest.warns(RuntimeWarning, match="ConnectionError: nobody answers; kin are found by letters only"):
        scores = ranker.predict(new)
    assert ranker.memory_ is not None
    assert ranker.guard_ is not None
    assert ranker.guard_.failures == len(new)
    nothing = new.replace(query_columns={**new.query_columns, "vector": np.zeros((len(new), 12), dtype=np.float32)})
    np.testing.assert_array_equal(scores, ranker.predict(nothing))
    columns = ranker.memory_.columns(nothing)
    of_meaning = [
        any(name.endswith((*MEANING, "meaning_chosen_for")) for name in [each]) for each in ranker.memory_.names
    ]
    assert sum(of_meaning) >= 6
    assert not columns[:, of_meaning].any()
    with warnings.catch_warnings():  # it is not asked again for some seconds, and that was said
        warnings.simplefilter("error")
        ranker.predict(new[:1])
    with pytest.raises(ConnectionError):
        ranker.add(queries[150])  # nothing is learned without its vector
    encoder.down = False
    ranker.guard_ = type(ranker.guard_)(ranker.guard_.encoder, ranker.guard_.width)
    np.testing.assert_array_equal(ranker.predict(new), alive)


def test_a_slow_encoder_is_not_waited_for(
    queries: QuerySet, ranker: KinRanker, encoder: Meanings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("kinrank.kin.encoders.guard._FIRST", 0.05)
    monkeypatch.setattr("kinrank.kin.encoders.guard._EACH", 0.0)
    encoder.slow = 2.0
    with pytest.warns(RuntimeWarning, match=r"no answer within 0\.05 s"):
        assert np.isfinite(ranker.predict(queries[150])).all()


def test_new_judgments_are_found_by_meaning_at_once(queries: QuerySet, ranker: KinRanker):
    number = next(number for number in range(36**5 + 3, 36**6) if number % N_TOPICS == 3)
    asked, new = (
        queries[150].replace(
            qid=np.array([900 + place]),
            query_columns={"text": np.array([np.base_repr(number + N_TOPICS * 1_000_003 * place, 36).lower()])},
            doc_id=np.array([f"new{row}" for row in range(7)]),
            doc_columns={"brand": np.array(["none"] * 7)},
            y=np.eye(7)[2],
        )
        for place in range(2)
    )
    before = ranker.predict(asked)
    ranker.add(new)
    assert ranker.predict(asked)[2] - before[2] > (ranker.predict(asked) - before)[[0, 1, 3, 4, 5, 6]].max()
    text = new.query_columns["text"][0]
    assert f"judged right for *{text}* (similar in meaning)" in ranker.explain(asked)[0].judged(2)
    ranker.remove([901])
    np.testing.assert_allclose(ranker.predict(asked), before)
