"""Kin by texts: the similarity is that of scikit-learn's TF-IDF, the index finds what all pairs would find."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.csgraph import connected_components
from sklearn.feature_extraction.text import TfidfVectorizer

from kinrank.memory import kin
from kinrank.memory._questions import TextQuestions
from kinrank.memory.kin import QueryIndex, Vocabulary, families_of, nearest_similarity

WORDS = ["toy", "story", "iron", "man", "spider", "frozen", "cast", "of", "the", "2", "dvd", "über", "heat"]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 5))) for _ in range(300)]


def cosines(texts: list[str]) -> np.ndarray:
    table = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True).fit_transform(texts)
    return (table @ table.T).toarray()


def test_similarity_is_the_cosine_of_scikit_learns_tfidf(texts: list[str]):
    index = QueryIndex().fit(texts)
    places, similarities = index.nearest(index.terms_, len(texts))
    expected = cosines(texts)
    for row in range(len(texts)):
        found = places[row] >= 0
        np.testing.assert_allclose(similarities[row, found], expected[row, places[row, found]], atol=1e-5)
        assert np.all(np.delete(expected[row], places[row, found]) < 1e-6)
        assert np.all(np.diff(similarities[row]) <= 0)


def test_words_weigh_as_scikit_learns(texts: list[str]):
    table = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+").fit_transform(texts)
    terms = Vocabulary.of(texts, words=True).terms(texts)
    for row in range(len(texts)):
        own = terms.weight[terms.offsets[row] : terms.offsets[row + 1]]
        np.testing.assert_allclose(np.sort(own), np.sort(table[row].data), atol=1e-6)


def test_families_are_the_connected_pairs(texts: list[str]):
    expected = connected_components(cosines(texts) > 0.6, directed=False)[1]
    found = families_of(texts)
    assert len(np.unique(found)) == len(np.unique(expected)) > 1
    assert len({*zip(found.tolist(), expected.tolist(), strict=True)}) == len(np.unique(expected))


def test_rare_terms_find_the_nearest_text_in_a_large_index(texts: list[str], monkeypatch: pytest.MonkeyPatch):
    known = [f"{text} {number}xyz" for number, text in enumerate(texts)]
    index = QueryIndex().fit(known)
    exact = index.nearest(index.terms_, 1)
    monkeypatch.setattr(kin, "_MOST_READ", 300)
    places, similarities = index.nearest(index.terms_, 1)
    assert np.array_equal(places, exact[0])
    np.testing.assert_allclose(similarities, exact[1], atol=1e-6)


def test_questions_are_as_similar_before_and_after_they_are_indexed():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(768)]
    last_ones, indexed = TextQuestions(), TextQuestions()
    last_ones.add(texts[:-1])
    indexed.add(texts)
    for asked in texts[:50]:
        compared, found = (dict(zip(*each.nearest(asked, 768), strict=True)) for each in (last_ones, indexed))
        found.pop(767, None)
        assert compared == found


def test_texts_of_the_same_key_and_others_are_left_out():
    index = QueryIndex().fit(["toy story", "toy story", "toy", "toys"])
    keys = np.array([1, 1, 2, 3], dtype=np.uint64)
    asked = index.vocabulary_.terms(["toy story"])
    places, _ = index.nearest(asked, 3, np.array([True, True, True, False]), (keys, keys[:1]))
    assert places.tolist() == [[2, -1, -1]]


def test_texts_without_letters_are_like_nothing():
    assert nearest_similarity(["", "!?", "a"], ["", "!?", "a"]).tolist() == [0.0, 0.0, 1.0]
    assert len(np.unique(families_of(["", "!?"]))) == 2
    assert len(families_of([])) == 0


@given(st.lists(st.text(max_size=12), min_size=1, max_size=12))
def test_any_text_is_most_similar_to_itself(texts: list[str]):
    index = QueryIndex().fit(texts)
    _, similarities = index.nearest(index.terms_, 1)
    empty = np.diff(index.terms_.offsets) == 0
    np.testing.assert_allclose(similarities[:, 0], np.where(empty, 0.0, 1.0), atol=1e-5)
    state = index.get_state()
    restored = QueryIndex().set_state(state)
    assert np.array_equal(restored.nearest(index.terms_, 2)[0], index.nearest(index.terms_, 2)[0])
