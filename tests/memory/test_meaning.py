"""Kin by meaning: a memory with an encoder, one that is down, another one, and what pairs of questions teach."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kinrank.errors import EncoderError
from kinrank.memory import memory as module
from kinrank.memory.agreement import MOST, PRIORS, Agreement, marks, weights_of_pairs
from kinrank.memory.memory import Memory
from kinrank.progress import on_progress

DOCUMENTS = ["billing", "login", "account", "hours"]
TOPICS = ("cat feline pet", "car auto vehicle", "shut close open hours", "pay bill invoice")


def by_topic(texts: list[str]) -> list[list[float]]:
    """Return how many words of each topic a text has: words of a topic have nothing in common but that."""
    return [[0.01, *(sum(word in topic.split() for word in text.split()) for topic in TOPICS)] for text in texts]


class Encoder:
    """An encoder that can be down."""

    def __init__(self, extra: int = 0) -> None:
        self.down, self.calls, self.extra = False, 0, extra

    def encode(self, texts: list[str]) -> Any:
        self.calls += 1
        if self.down:
            raise OSError("connection refused")
        return [row + [0.5] * self.extra for row in by_topic(texts)]


@pytest.fixture
def encoder() -> Encoder:
    return Encoder()


def teach(memory: Memory, people: int = 3) -> None:
    for user in range(people):
        memory.learn("feline food", DOCUMENTS, ["hours"], user=user)
        memory.learn("vehicle tax", DOCUMENTS, ["account"], user=user)


def first(memory: Memory, question: str, **given: Any) -> Any:
    return memory.rerank(question, DOCUMENTS, **given)[0].id


def test_kin_are_found_by_meaning(encoder: Encoder, tmp_path: Path):
    memory = Memory(tmp_path / "memory.db", encoder=encoder)
    teach(memory)
    memory.close()
    for each in (memory := Memory(tmp_path / "memory.db", encoder=encoder), Memory(":memory:", encoder=by_topic)):
        if len(each) == 0:
            teach(each)
        assert first(each, "my cat") == "hours"
        assert first(each, "auto") == "account"
        assert first(each, "nothing like it") == "billing"
        assert "feline food" in each.rerank("my cat", DOCUMENTS)[0].reason
        assert [hit.id for hit in each.recall("my cat", 1)] == ["hours"]
    by_letters = Memory(tmp_path / "memory.db")
    assert first(by_letters, "my cat") == "billing"
    assert first(by_letters, "feline foods") == "hours"
    assert first(by_letters, "my cat", vector=by_topic(["cat"])[0]) == "hours"


def test_an_encoder_that_is_down_means_letters_only(encoder: Encoder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kinrank.kin.encoders.guard._PAUSE", 0.0)
    memory = Memory(":memory:", encoder=encoder)
    teach(memory)
    encoder.down = True
    with pytest.warns(RuntimeWarning, match="connection refused; kin are found by letters only"):
        assert first(memory, "my cat") == "billing"
    assert memory.health.unencoded == 1
    with pytest.warns(RuntimeWarning, match="letters only"):
        memory.learn("my kitten", DOCUMENTS, ["login"], user="ann")
    encoder.down = False
    assert first(memory, "my kitten") == "login"  # learned without a vector, and found by letters
    assert first(memory, "cat") == "hours"
    assert memory.health.unencoded == 2
    assert memory.reembed() == 3


def test_an_encoder_that_is_down_from_the_beginning(encoder: Encoder, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kinrank.kin.encoders.guard._PAUSE", 0.0)
    encoder.down = True
    with pytest.warns(RuntimeWarning, match="connection refused; kin are found by letters only"):
        memory = Memory(":memory:", encoder=encoder)
    with pytest.warns(RuntimeWarning, match="letters only"):
        teach(memory, 1)
    with pytest.warns(RuntimeWarning, match="letters only"):
        assert first(memory, "feline foods") == "hours"
    encoder.down = False
    assert first(memory, "my cat") == "billing"
    assert memory.reembed() == 2
    assert first(memory, "my cat") == "hours"


@pytest.mark.parametrize("tenant", ["", "acme"])
def test_another_encoder_is_refused_until_everything_is_embedded_again(encoder: Encoder, tmp_path: Path, tenant: str):
    path = tmp_path / "memory.db"
    memory = Memory(path, encoder=encoder, tenant=tenant)
    teach(memory)
    wider, other = Encoder(extra=2), Encoder(extra=1)
    with pytest.raises(EncoderError, match=r"'custom' \(5 numbers\), and encoder='custom' \(7 numbers\).*reembed"):
        Memory(path, encoder=wider, tenant=tenant)
    steps: list[tuple[str, float, float]] = []
    follower = Memory(path, tenant=tenant)
    with on_progress(lambda *step: steps.append(step)):
        assert Memory(path, tenant=tenant).reembed(wider) == 2
    assert steps == [("embedding", 2, 2)]
    again = Memory(path, encoder=wider, tenant=tenant)
    assert first(again, "my cat") == "hours"
    assert follower._width == 7 or first(follower, "feline food") == "hours"
    with pytest.raises(EncoderError, match="reembed"):
        Memory(path, encoder=other, tenant=tenant)
    assert again.reembed("ngrams") == 2
    assert first(again, "my cat") == "billing"
    assert again.encoder == "ngrams"
    Memory(path, encoder=other, tenant=tenant).close()


def test_the_same_width_is_not_the_same_encoder(encoder: Encoder, tmp_path: Path):
    teach(Memory(tmp_path / "memory.db", encoder=encoder))
    with pytest.raises(EncoderError, match="is another one"):
        Memory(tmp_path / "memory.db", encoder=lambda texts: [row[::-1] for row in by_topic(texts)])


def test_the_file_of_a_memory_has_its_indexes(encoder: Encoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_WRITTEN", 1)
    path = tmp_path / "memory.db"
    memory = Memory(path, encoder=encoder)
    teach(memory)
    asked = ("my cat", "auto", "feline foods", "zzz")
    answers = [memory.rerank(question, DOCUMENTS) for question in asked]
    memory.close()
    written = {file.stat().st_mtime_ns for file in memory._file.rglob("*.npy")}  # type: ignore[union-attr]
    with monkeypatch.context() as patched:
        patched.setattr("kinrank.kin.questions.Vocabulary", None)  # nothing is counted again
        opened = Memory(path, encoder=encoder)
    assert [opened.rerank(question, DOCUMENTS) for question in asked] == answers
    opened.close()
    assert {file.stat().st_mtime_ns for file in memory._file.rglob("*.npy")} == written  # type: ignore[union-attr]
    opened = Memory(path, encoder=encoder)
    opened.learn("bill of my cat", DOCUMENTS, ["billing"], user=9)
    assert first(opened, "invoice") == "billing"
    opened.forget(question="feline food")
    assert not memory._file.exists()  # type: ignore[union-attr]
    assert len(Memory(path, encoder=encoder)) == 2


# --- agreement ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "differ"),
    [
        ("C++ or Java", "C# or Java", True),
        ("version 2.1", "version 3.0", True),
        ("if x >= 10", "if x <= 10", True),
        ("-5 degrees", "5 degrees", True),
        ("with sugar", "without sugar", True),
        ("it does work", "it doesn't work", True),
        ("Reset my password?", "reset MY password!", False),
        ("Iron-Man", "iron man", False),
    ],
)
def test_numbers_symbols_and_negations_are_part_of_a_text(one: str, other: str, differ: bool):
    assert (marks(one) != marks(other)) == differ


@pytest.mark.parametrize("kind", ["meaning", "static"])
def test_agreement_grows_with_both_similarities(kind: str):
    alike = np.linspace(0.0, 1.0, 30)
    same = np.zeros(30, dtype=bool)
    agreement = Agreement(kind)
    for fixed in (0.2, 0.8):
        by_letters = agreement(alike, np.full(30, fixed), same)
        by_cosine = agreement(np.full(30, fixed), alike, same)
        assert (np.diff(by_letters) >= 0).all()
        assert (np.diff(by_cosine) >= 0).all()
    assert (np.diff(agreement(alike, np.full(30, np.nan), same)) >= 0).all()
    assert agreement(np.ones(1), np.ones(1), same[:1])[0] <= MOST
    assert set(PRIORS) == {"letters", "meaning", "static"}


def test_pairs_of_a_question_and_of_a_person_are_shared():
    question = np.array([1, 1, 1, 2, 3, 4, 5, 6, 7, 8])
    sole = np.array([-2, -2, -2, -3, 9, 9, 9, 9, 9, 9])
    weights = weights_of_pairs(question, sole, np.ones(10), np.array([0.2, 0.2, 0.4, *[0.5] * 7]), 3)
    np.testing.assert_allclose(weights, [0.25, 0.25, 0.5, 1.0, *[0.5] * 6])


def test_one_person_teaches_little_about_agreement():
    memory = Memory(":memory:")
    rng = np.random.default_rng(0)
    words = [f"{a}{b}{a}" for a in "bdgklmnprst" for b in "aeiou"]
    topics = [" ".join(rng.choice(words, 4)) for _ in range(60)]
    for number, topic in enumerate(topics):
        for half in ("now", "then"):
            memory.learn(f"{topic} {half}", [f"d{number}"], [f"d{number}"], user=f"{number} {half}")

    def agree() -> float:
        return float(1 / (1 + np.exp(-memory._agreement(np.array([0.8]), np.array([np.nan]), np.array([False]))[0])))

    before = agree()
    for number, topic in enumerate(topics):
        memory.learn(f"{topic} and so on", [f"spam{number}"], [f"spam{number}"], user="mallory")
    assert before - agree() < 0.05
    for number, topic in enumerate(topics):
        memory.learn(f"{topic} and more", [f"more{number}"], [f"more{number}"], user=f"{number} more")
    assert before - agree() > 0.05
