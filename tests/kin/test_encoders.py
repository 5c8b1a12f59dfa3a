from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

from kinrank.errors import DataError, EncoderError, ParameterError
from kinrank.kin.encoders import ENCODERS, make_encoder
from kinrank.kin.encoders._pretrained import CustomEncoder, Model2VecEncoder
from kinrank.kin.encoders.base import Encoder
from kinrank.kin.encoders.ngrams import NgramEncoder, fold

TITLES = ["iron man", "iron man 2", "spider man", "spiderman", "toy story", "toy story 2", "the godfather", "godfather"]


class Lengths:
    """An encoder of somebody else: two numbers per text."""

    def encode(self, texts: list[str]) -> list[list[float]]:
        return [[1.0 + len(text), text.count("a")] for text in texts]


def nearest(encoder: Encoder, text: str, among: list[str]) -> str:
    vectors = encoder.encode(among)
    return among[int(np.argmax(vectors @ encoder.encode([text])[0]))]


def test_vectors_equal_tf_idf_projected_on_the_leading_directions():
    encoder = NgramEncoder(n_components=2, shortest=2, longest=3).fit(TITLES)
    ngrams = encoder.get_state()["ngrams"].tolist()

    def tf_idf(text: str) -> np.ndarray:
        padded = f" {fold(text)} "
        counts = Counter(padded[i : i + n] for n in (2, 3) for i in range(len(padded) - n + 1))
        documents = [sum(ngram in f" {fold(title)} " for title in TITLES) for ngram in ngrams]
        row = np.array(
            [
                (1 + math.log(counts[ngram])) * (math.log((1 + len(TITLES)) / (1 + seen)) + 1) if counts[ngram] else 0.0
                for ngram, seen in zip(ngrams, documents, strict=True)
            ]
        )
        return row / np.linalg.norm(row)

    table = np.array([tf_idf(title) for title in TITLES])
    _, _, directions = np.linalg.svd(table, full_matrices=False)
    expected = table @ directions[:2].T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = encoder.encode(TITLES)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-5)


def test_typing_errors_case_and_width_keep_a_text_near():
    encoder = NgramEncoder().fit(TITLES)
    assert nearest(encoder, "SPIDRMAN", TITLES) in ("spiderman", "spider man")
    assert nearest(encoder, "Ｉｒｏｎ　Ｍａｎ", TITLES) == "iron man"
    assert nearest(encoder, "toy  storry", TITLES).startswith("toy story")


@pytest.mark.parametrize(
    ("texts", "text", "expected"),
    [
        (["größte wälder", "größter wald", "kleine häuser", "kleines haus"], "GRÖSSTE WÄLDER", "größte"),
        (["日本映画", "日本の映画", "韓国料理", "韓国の料理"], "日本映画祭", "日本"),
        (["🎬 action", "🎬 drama", "🍕 pizza", "🍕 rezept"], "🍕", "🍕"),
    ],
)
def test_other_languages_have_sensible_neighbors(texts: list[str], text: str, expected: str):
    assert nearest(NgramEncoder().fit(texts), text, texts).startswith(expected)
    vectors = NgramEncoder().fit(texts).encode([text, ""])
    assert np.isfinite(vectors).all()
    assert not vectors[1].any()


@given(st.lists(st.text(max_size=30), min_size=1, max_size=8), st.text(max_size=30))
def test_any_text_gives_a_finite_vector_of_length_one_or_zero(texts: list[str], text: str):
    if not any(map(fold, texts)):
        with pytest.raises(DataError, match="all query texts are empty"):
            NgramEncoder().fit(texts)
        return
    lengths = np.linalg.norm(NgramEncoder().fit(texts).encode([*texts, text]), axis=1)
    assert np.all(np.isclose(lengths, 1.0, atol=1e-4) | (lengths == 0.0))


def test_state_restores_the_encoder_and_refuses_another():
    encoder = NgramEncoder().fit(TITLES)
    state = encoder.get_state()
    twin = NgramEncoder().set_state(state)
    np.testing.assert_array_equal(twin.encode(TITLES), encoder.encode(TITLES))
    changed = {**state, "probe": -state["probe"]}
    with pytest.raises(EncoderError, match="encodes a probe text differently: use the encoder"):
        NgramEncoder().set_state(changed)


def test_settings_that_make_no_sense_raise():
    with pytest.raises(ParameterError, match="shortest must be from 1 to longest, got 4 and 3"):
        NgramEncoder(shortest=4, longest=3).fit(TITLES)
    with pytest.raises(ParameterError, match="n_components and max_ngrams must be at least 1, got 0"):
        NgramEncoder(0).fit(TITLES)
    with pytest.raises(ParameterError, match="is not fitted"):
        NgramEncoder().encode(TITLES)
    with pytest.raises(ParameterError, match="encoder must be a name, an object with encode"):
        make_encoder(3)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="unknown encoder 'bert'"):
        make_encoder("bert:base")


def test_objects_functions_and_names_become_encoders():
    by_object, by_function = make_encoder(Lengths()), make_encoder(Lengths().encode)
    np.testing.assert_array_equal(by_object.encode(["aa", "b"]), by_function.encode(["aa", "b"]))
    assert make_encoder("ngrams(n_components=7)").spec == "ngrams(n_components=7)"
    assert {make_encoder(f"{name}:x").spec for name in ("model2vec", "fastembed", "sentence-transformers")} == {
        "model2vec:x",
        "fastembed:x",
        "sentence-transformers:x",
    }
    fitted = NgramEncoder().fit(TITLES)
    assert make_encoder(fitted) is fitted
    assert clone(fitted) is fitted
    assert all(name in ENCODERS for name in ("ngrams", "custom"))


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ([[1.0]], r"array of 2 finite vectors, got shape \(1, 1\)"),
        ([[1.0], [np.nan]], "array of 2 finite vectors"),
        ([["a"], ["b"]], "must return one vector per text"),
    ],
)
def test_wrong_vectors_of_an_encoder_raise(answer: list[list[object]], message: str):
    with pytest.raises(DataError, match=message):
        make_encoder(lambda _: answer).encode(["a", "b"])


def test_an_encoder_that_is_not_there_says_how_to_give_it():
    with pytest.raises(EncoderError, match=r"kinrank.load\(path, encoder=...\)"):
        CustomEncoder().encode(["a"])


def test_encoders_of_one_name_share_the_loaded_model(monkeypatch: pytest.MonkeyPatch):
    loaded: list[str] = []

    def load(encoder: Model2VecEncoder) -> Lengths:
        loaded.append(encoder.model)
        return Lengths()

    monkeypatch.setattr(Model2VecEncoder, "load", load)
    for _ in range(2):
        make_encoder("model2vec:shared by a test").encode(["a"])
    assert loaded == ["shared by a test"]


def test_a_query_log_teaches_ngrams_that_training_texts_lack() -> None:
    training = ["iron man", "toy story"]
    log = ["blade runner", "blade runer 2049", "blade"]
    plain, taught = NgramEncoder().fit(training), clone(NgramEncoder(log=log)).fit(training)
    assert not plain.encode(["blade runner"]).any()
    blade, other, iron = taught.encode(["blade runner 2049", "blade", "iron man"])
    assert blade @ other > blade @ iron
    assert taught.spec == "ngrams"  # a model folder stores what was learned, not the log
