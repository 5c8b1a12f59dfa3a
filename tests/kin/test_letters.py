"""Kin by texts: the similarity is that of scikit-learn's TF-IDF, the index finds what all pairs would find."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from kinrank.kin import letters
from kinrank.kin.families import families_of
from kinrank.kin.letters import QueryIndex, Vocabulary, nearest_similarity
from kinrank.kin.questions import TextQuestions
from kinrank.kin.spelling import Spellings

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


def test_near_pairs_are_all_pairs_above_the_bound(texts: list[str]):
    expected = np.argwhere(np.tril(cosines(texts) > 0.6, -1))
    assert {*zip(*(each.tolist() for each in QueryIndex().fit(texts).near_pairs()), strict=True)} == {
        *map(tuple, expected.tolist())
    }
    assert len(expected) > 10


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "BLOCK", 512)


def many_texts(n: int) -> list[str]:
    """Return texts of common and rare words, as people write them."""
    rng = np.random.default_rng(5)
    rare = ["".join(rng.choice(list("abcdefghijklmnop"), 6)) for _ in range(n // 4)]
    return [" ".join([*rng.choice(WORDS, rng.integers(1, 6)), *rng.choice(rare, rng.integers(0, 3))]) for _ in range(n)]


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n", [1, 50])
def test_all_of_the_most_similar_texts_are_found_in_many_blocks(n: int):
    known = many_texts(3000)
    index = QueryIndex().fit(known)
    assert len(index._blocks) == 5 + 1
    asked = index.terms_.take(np.arange(0, 3000, 40))
    dense = np.zeros((len(known), len(index.vocabulary_.idf)), dtype=np.float32)
    dense[np.repeat(np.arange(3000), np.diff(index.terms_.offsets)), index.terms_.term] = index.terms_.weight
    expected = dense[::40] @ dense.T
    places, similarities = index.nearest(asked, n)
    np.testing.assert_allclose(similarities, -np.sort(-expected, axis=1)[:, :n], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(expected, places, axis=1), similarities, atol=1e-5)


@pytest.mark.usefixtures("small_blocks")
def test_only_the_rarer_terms_of_long_texts_are_read(monkeypatch: pytest.MonkeyPatch):
    known = [f"{text} {number}xyz" for number, text in enumerate(many_texts(1500))]
    index = QueryIndex().fit(known)
    exact = index.nearest(index.terms_, 1)
    monkeypatch.setattr(letters, "_MOST_READ", 1)
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
    asked = index.describe(["toy story"])
    places, _ = index.nearest(asked, 3, np.array([True, True, True, False]), (keys, keys[:1]))
    assert places.tolist() == [[2, -1, -1]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("C++", "C#"),
        ("C", "C++"),
        ("C", "C#"),
        ("F#", "F"),
        (">= 10", "<= 10"),
        ("a > b", "a < b"),
        ("a != b", "a = b"),
        ("-5", "5"),
        ("version 2.1", "version 3.0"),
        ("2.1", "21"),
        ("1,5", "15"),
        ("50%", "50"),
        ("$5", "€5"),
    ],
)
def test_symbols_in_words_numbers_and_comparisons_make_a_difference(one: str, other: str):
    assert nearest_similarity([one], [other])[0] < 0.8
    assert nearest_similarity([one], [f"{one}?"])[0] == pytest.approx(1.0)
    assert len(np.unique(families_of([one, other]))) == 2 or "version" in one
    assert Spellings([other]).nearest(one) is None


def test_punctuation_makes_none():
    texts = ["Iron-Man, part 2", "iron man (part 2)", "iron man: part 2.", "iron man / part 2!", "“iron man” – part 2"]
    np.testing.assert_allclose(nearest_similarity(texts[1:], texts[:1]), 1.0, atol=1e-6)


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
