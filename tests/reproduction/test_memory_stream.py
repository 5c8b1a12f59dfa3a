"""The benchmark of `Memory` in a stream: people, measures, and a small stream in which the retriever is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.memory_stream import (
    SYSTEMS,
    Index,
    Outcome,
    Remembered,
    Retriever,
    Stream,
    choices,
    corrections,
    ndcg,
    play,
)
from kinrank import KinRanker


def make_shop(n_questions: int) -> Stream:
    """Return questions on six things in many ways; the text that is right has none of their words but "help"."""
    things = [
        "reset password",
        "delete account",
        "export invoice",
        "change language",
        "invite colleague",
        "print label",
    ]
    texts = {f"right {thing}": f"help number {place}" for place, thing in enumerate(things)}
    texts |= {f"wrong {thing}": f"all about {thing}" for thing in things}
    order = np.random.default_rng(0).permutation(n_questions).tolist()
    asked = [(f"help me {things[number % 6]} {number}", things[number % 6]) for number in order]
    index = Index(texts)
    questions = [text for text, _ in asked]
    grades = [{f"right {thing}": 1.0} for _, thing in asked]
    return Stream(texts, questions, grades, [index.search(text) for text in questions])


@pytest.fixture
def shop() -> Stream:
    return make_shop(240)


def test_memory_learns_what_the_retriever_never_does(shop: Stream):
    later = {name: np.mean(play(shop, make(shop), wrong=0.2).first[120:]) for name, make in SYSTEMS.items()}
    assert later["retriever"] == 0.0
    assert later["memory"] > 0.6
    assert later["memory"] > later["counter"]


def test_people_choose_only_what_is_relevant_unless_they_are_wrong():
    shown, grades = [str(place) for place in range(10)], {"0": 1.0, "4": 1.0}
    rng = np.random.default_rng(0)
    right = [choices(rng, shown, grades, 0.0) for _ in range(2000)]
    assert {each for chosen in right for each in chosen} == {"0", "4"}
    assert np.mean([not chosen for chosen in right]) == pytest.approx(0.3 + 0.7 * 0.2 * (1 - 0.8 / 5**0.5), abs=0.03)
    mixed = [choices(rng, shown, grades, 0.2) for _ in range(2000)]
    made = [chosen for chosen in mixed if chosen]
    assert np.mean([chosen[0] not in grades for chosen in made]) == pytest.approx(0.2, abs=0.03)


def test_ndcg_counts_relevant_documents_that_no_search_finds():
    assert ndcg(["a", "b"], {"a": 1.0}) == 1.0
    assert ndcg(["b", "a"], {"a": 1.0}) == pytest.approx(1 / np.log2(3))
    assert ndcg(["a"], {"a": 1.0, "z": 1.0}) == pytest.approx(1 / (1 + 1 / np.log2(3)))
    assert ndcg([], {"a": 1.0}) == 0.0


def test_corrections():
    stream = Stream({}, ["a", "b", "c", "d"], [{"x": 1.0}, {"x": 1.0}, {"x": 1.0}, {"y": 1.0}], [])
    outcome = Outcome(first=[False, False, True, False], chosen=[["x"], ["z"], [], []])
    assert corrections(stream, outcome) == {"mended": 1.0, "lag": 2, "after feedback": 0.5}


def test_documents_that_change_keep_their_votes(shop: Stream):
    system, unchanged = Remembered(shop), Remembered(shop)

    def before(number: int) -> None:
        if number == 120:
            system.texts |= {name: f"{text}, new" for name, text in system.texts.items()}

    first = play(shop, system, wrong=0.0, before=before).first
    assert system.texts != unchanged.texts
    assert first == play(shop, unchanged, wrong=0.0).first


def test_a_liar_is_one_person(shop: Stream):
    honest = np.mean(play(shop, Remembered(shop), wrong=0.0).first[120:])
    assert np.mean(play(shop, Remembered(shop), wrong=0.0, liar=True).first[120:]) > honest - 0.2
    assert np.mean(play(shop, Retriever(shop), wrong=0.0, liar=True).first) == 0.0


@pytest.mark.slow
def test_a_trained_ranker_is_level_with_rerank_on_later_questions():
    shop, n_known = make_shop(600), 500
    hits = dict(zip(shop.questions, shop.hits, strict=True))

    def retrieve(question: str) -> tuple[list[tuple[str, str]], list[float]]:
        return [(name, shop.texts[name]) for name, _ in hits[question]], [score for _, score in hits[question]]

    system = Remembered(shop)
    known = Stream(shop.texts, shop.questions[:n_known], shop.grades[:n_known], shop.hits[:n_known])
    play(known, system, wrong=0.2)
    ranker = system.memory.train(KinRanker(local=False, settings={"n_repeats": 1}), retrieve)
    right: dict[str, list[bool]] = {"retriever": [], "memory": [], "trained": []}
    for question, grades in zip(shop.questions[n_known:], shop.grades[n_known:], strict=True):
        found = [name for name, _ in hits[question]]
        scores = ranker.predict(system.memory.to_queries({question: retrieve(question)}))
        right["retriever"].append(found[0] in grades)
        right["memory"].append(system.memory.rerank(question, *retrieve(question))[0].id in grades)
        right["trained"].append(found[int(np.argmax(scores))] in grades)
    first = {name: np.mean(each) for name, each in right.items()}
    assert first["retriever"] == 0.0
    assert first["memory"] > 0.6
    assert first["trained"] >= first["memory"] - 0.02
