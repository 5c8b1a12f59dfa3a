"""One person against five and against everybody else, through any door: who comes first must not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

SPAM = "spam"
QUESTION = "how do I reset my forgotten password"
DOCUMENTS = ["billing", "login", "account", "hours", SPAM]
RIGHT = "account"
_SYLLABLES = [f"{a}{b}" for a in "bdgklmnprstv" for b in "aeiou"]


class Door(Protocol):
    """How people ask and say what they like."""

    def like(self, question: str, documents: list[str], liked: str, user: str | None) -> None:
        """Ask, and like a document."""

    def first(self, question: str, documents: list[str]) -> str:
        """Return the first document for a question."""


class World:
    """Questions of many people: some are known, two of three words of them are in another one that is asked later."""

    def __init__(self, n_known: int = 64, n_asked: int = 192) -> None:
        rng = np.random.default_rng(0)
        words = ["".join(rng.choice(_SYLLABLES, 3)) for _ in range(400)]
        self.known = ["where is my " + " ".join(rng.choice(words, 3, replace=False)) for _ in range(n_known)]
        self.asked = [f"{self.known[n % n_known].rsplit(' ', 1)[0]} {rng.choice(words)}" for n in range(n_asked)]
        self.documents = [[f"d{n % n_known}-{place}" for place in range(4)] + [SPAM] for n in range(n_asked)]

    def teach(self, door: Door) -> None:
        """Let two people say for each known question that the third document is right; and five, for one question."""
        for number, question in enumerate(self.known):
            for user in range(2):
                door.like(question, self.documents[number], self.documents[number][2], f"user {number} {user}")
        for user in range(5):
            door.like(QUESTION, DOCUMENTS, RIGHT, f"one of five {user}")

    def firsts(self, door: Door) -> list[str]:
        """Return the first document of each other question."""
        return [door.first(question, found) for question, found in zip(self.asked, self.documents, strict=True)]


def three_paraphrases(door: Door, world: World) -> None:
    for question in (QUESTION.replace("how do I", "I want to"), f"{QUESTION} please", f"help: {QUESTION}"):
        door.like(question, DOCUMENTS, SPAM, "mallory")


def templates(door: Door, world: World) -> None:
    for number in range(300):
        question = world.asked[number % len(world.asked)]
        door.like(f"{question} {number // len(world.asked)}", [SPAM], SPAM, "mallory")


def lists_without_a_name(door: Door, world: World) -> None:
    for number in range(30):
        door.like(QUESTION if number % 2 else f"{QUESTION} {number}", DOCUMENTS, SPAM, None)


def templates_without_a_name(door: Door, world: World) -> None:
    for number in range(300):
        question = world.asked[number % len(world.asked)]
        door.like(f"{question} {number // len(world.asked)}", [SPAM], SPAM, None)


ATTACKS: list[Callable[[Door, World], None]] = [three_paraphrases, templates, lists_without_a_name]


def check(door: Door, attack: Callable[[Door, World], None]) -> None:
    """Check that an attack moves no first place."""
    world = World()
    world.teach(door)
    before = world.firsts(door)
    assert before == [documents[2] for documents in world.documents]
    assert door.first(QUESTION, DOCUMENTS) == RIGHT
    attack(door, world)
    assert door.first(QUESTION, DOCUMENTS) == RIGHT
    moved = [question for question, was, now in zip(world.asked, before, world.firsts(door), strict=True) if was != now]
    assert moved == []
