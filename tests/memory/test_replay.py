from __future__ import annotations

import numpy as np
import pytest

from kinrank import Memory
from kinrank.errors import DataError
from kinrank.memory.replay import MEMORY, NEAREST, POPULAR, RETRIEVER, VOTING, replay, searches
from kinrank.memory.tables import Said

TOPICS = ("reset my password", "opening hours on sunday", "cancel the order", "track the parcel", "invoice by email")
WORDS = ("please", "hello, how about", "quick question:", "I want to know", "can you help:", "today", "again", "asap")
DAY = 86_400.0


def log(n: int, seed: int = 0, *, at_random: bool = False) -> list[Said]:
    """Votes on answers, which the retriever shows in any order."""
    rng, votes = np.random.default_rng(seed), []
    answers = [f"answer {number}" for number in range(len(TOPICS))]
    for number in range(n):
        topic = int(rng.integers(len(TOPICS)))
        right = answers[int(rng.integers(len(TOPICS))) if at_random else topic]
        shown = tuple(rng.permutation(answers).tolist())
        text = f"{WORDS[int(rng.integers(len(WORDS)))]} {TOPICS[topic]} {number}"
        votes.append(Said(text, right, "liked", f"u{number}", None, number * DAY / 4, shown))
    return votes


def test_a_log_with_similar_questions_pays():
    found = replay(log(80))
    assert set(found.systems) == {MEMORY, RETRIEVER, NEAREST, VOTING, POPULAR}
    assert found.pays(RETRIEVER)
    assert found.pays(POPULAR)
    assert found.gain(RETRIEVER).mean_difference > 0.3
    first = found.first_day(RETRIEVER)
    assert first is not None
    assert first < 5
    assert found.gain(RETRIEVER, since=10).n == 40
    assert "80 searches with a right document, on 20 days. NDCG@10:\n  memory: ." in str(found)


def test_a_log_of_random_votes_does_not_pay():
    told = [str(replay(log(40, seed, at_random=True))).splitlines()[-1] for seed in range(10)]
    assert told.count("On this log, memory does not pay.") >= 9


def test_what_is_said_later_answers_nothing():
    votes = [
        Said("opening hours", "contact", "liked", "ann", None, 2 * DAY, ("shop", "contact")),
        Said("opening hours", "contact", "liked", "bob", None, DAY, ("shop", "contact")),
    ]
    found = replay(votes)
    assert found.days.tolist() == [1, 2]
    assert found.systems[MEMORY].round(2).tolist() == [0.63, 1.0]
    assert "Too few searches for a verdict: it takes 20, and two questions." in str(found)


def test_votes_of_one_search_are_one_search():
    votes = [
        Said("q", "a", "liked", "ann", None, 5.0),
        Said("q", "b", "disliked", "ann", None, 5.0),
        Said("q", "c", "liked", "bob", None, 4.0),
        Said("q", "d", "liked", None, None, None),
        Said("q", "e", "liked", None, None, None),
    ]
    found = searches(votes)
    assert [search.votes for search in found] == [
        {"d": "liked"},
        {"e": "liked"},
        {"c": "liked"},
        {"a": "liked", "b": "disliked"},
    ]
    assert found[-1].right == {"a"}


def test_a_replay_needs_votes_and_an_empty_memory():
    with pytest.raises(DataError, match="no search of this log has a right document"):
        replay([Said("q", "a", "disliked", None, None, None)])
    with Memory(":memory:") as memory:
        memory.learn("q", ["a"], ["a"])
        with pytest.raises(DataError, match="replay takes an empty memory, got one with 1 questions"):
            replay([], memory)


def test_why_names_each_vote_for_and_against():
    with Memory(":memory:") as memory:
        for user in ("ann", "bob"):
            memory.learn("How do I reset my password?", ["billing", "account"], ["account"], user=user)
        memory.learn("reset the password", disliked=["account"], liked=["login"], user="eve")
        found = memory.why("I want to reset my password", "account")
        assert [part.similar.question for part in found.parts] == ["How do I reset my password?", "reset the password"]
        assert [(part.votes_for, part.votes_against) for part in found.parts] == [(2, 0), (0, 2)]
        assert 0 < found.strength < 1
        assert 0.5 < found.share < 1
        assert found.doubt < 1
        assert sum(part.share for part in found.parts) == pytest.approx(found.share)
        total = found.share + memory.why("I want to reset my password", "login").share
        assert total == pytest.approx(1.0)
        unknown = str(memory.why("I want to reset my password", "prices"))
        assert unknown == "prices: no similar question says anything of it; the retriever's place counts"
        similar = memory.similar("I want to reset my password", 1)
        assert [each.question for each in similar] == ["How do I reset my password?"]
        assert similar[0].meaning is None
