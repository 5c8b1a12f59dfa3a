"""A person counts once for a document, whatever they ask, and those without a name are one person."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kinrank import Memory
from tests.memory import abuse


class Python:
    """The door of `Memory` itself."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory

    def like(self, question: str, documents: list[str], liked: str, user: str | None) -> None:
        self.memory.learn(question, documents, liked=[liked], user=user)

    def first(self, question: str, documents: list[str]) -> str:
        return str(self.memory.rerank(question, documents)[0].id)


@pytest.fixture
def memory() -> Memory:
    return Memory(":memory:")


@pytest.mark.parametrize("attack", abuse.ATTACKS)
def test_one_person_moves_no_first_place(memory: Memory, attack: Callable[[abuse.Door, abuse.World], None]):
    abuse.check(Python(memory), attack)


def likelihood(memory: Memory, question: str = "reset my password") -> float:
    """Return what is said for the second of two documents."""
    return {hit.id: hit.score for hit in memory.rerank(question, ["a", "b"])}["b"]


def test_a_person_counts_for_the_nearest_of_the_kin_only(memory: Memory):
    memory.learn("reset my password", liked=["b"], user="ann")
    once = likelihood(memory)
    memory.learn("reset my password now", liked=["b"], user="ann")
    memory.learn("how to reset my password", liked=["b"], user="ann")
    assert likelihood(memory) <= once
    memory.learn("how to reset my password", liked=["b"], user="bob")
    assert likelihood(memory) > once


def test_those_without_a_name_are_one_person(memory: Memory):
    named = Memory(":memory:")
    named.learn("reset my password", liked=["b"], user="ann")
    for _ in range(10):
        memory.learn("reset my password", liked=["b"])
    assert likelihood(memory) == likelihood(named)
    memory.learn("reset my password", disliked=["b"])
    assert likelihood(memory) < likelihood(named)  # the mean of what they say


def test_those_without_a_name_count_for_each_question_that_is_another_one(memory: Memory):
    """So that a list of questions with their answers can be taught as it is."""
    memory.learn("reset my password", liked=["b"])
    once = likelihood(memory, "how can I reset it")
    memory.learn("reset the password", liked=["b"])
    assert likelihood(memory) > likelihood(memory, "nothing like that")
    memory.learn("can I reset this router", liked=["b"])
    assert likelihood(memory, "how can I reset it") > once


def test_what_a_person_says_for_many_questions_is_shared_among_them(memory: Memory):
    scores = []
    for number in range(8):
        memory.learn(f"reset my password {'abcdefgh'[number] * 4}", liked=["b"], user="ann")
        scores.append(memory._snapshot.kin_cells([0]).amount.tolist())
    assert scores[:3] == [[20.0]] * 3
    assert scores[3:] == [[pytest.approx(20 * 3 / n)] for n in range(4, 9)]


def test_questions_of_one_person_do_not_tell_how_far_questions_agree(memory: Memory):
    for user in ("ann", "ann", "bob"):
        n = len(memory)
        memory.learn(f"reset my password {'abc'[n] * 4}", liked=["b"], user=user)
    pairs = memory._snapshot.pairs
    assert len(pairs.same) == 3
    assert sorted(pairs.same.tolist()) == [-1, 1000, 1000]
