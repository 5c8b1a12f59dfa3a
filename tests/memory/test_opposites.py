"""Opposites, codes and versions: what one person taught for one side is not the answer for the other."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.memory_meaning import minilm
from kinrank import Memory

PAIRS: list[dict[str, Any]] = tomllib.loads((Path(__file__).parent / "opposites.toml").read_text())["pair"]
pytestmark = pytest.mark.neural


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    texts = [text for pair in PAIRS for texts in pair.values() for text in texts]
    return dict(zip(texts, minilm()(texts), strict=True))


def test_there_are_sixty_pairs():
    assert len(PAIRS) == 60
    assert all(len(pair["taught"]) == 2 and len(pair["one"]) == len(pair["other"]) == 3 for pair in PAIRS)


def test_both_sides_taught_once_by_one_person(vectors: dict[str, Any]):
    memory = Memory(":memory:")
    for number, pair in enumerate(PAIRS):
        for side, text in zip("ab", pair["taught"], strict=True):
            memory.learn(text, liked=[f"{number}{side}"], user="ann", vector=vectors[text])
    right = [
        memory.recall(text, 1, vector=vectors[text])[0].id == f"{number}{side}"
        for number, pair in enumerate(PAIRS)
        for side, asked in (("a", pair["one"]), ("b", pair["other"]))
        for text in asked
    ]
    print(f"both sides taught: {np.mean(right):.3f} of {len(right)}")
    assert np.mean(right) >= 0.9


@pytest.mark.parametrize("people", [1, 2, 5])
def test_one_side_taught(vectors: dict[str, Any], people: int):
    """Memory is not worse than the retriever, the cosine with the two taught texts, over both sides."""
    first = {"retriever": 0, "memory": 0}
    for pair in PAIRS:
        memory = Memory(":memory:")
        for user in range(people):
            memory.learn(pair["taught"][0], liked=["a"], user=user, vector=vectors[pair["taught"][0]])
        for side, asked in (("a", pair["one"]), ("b", pair["other"])):
            for text in asked:
                scores = [float(vectors[taught] @ vectors[text]) for taught in pair["taught"]]
                first["retriever"] += "ab"[int(np.argmax(scores))] == side
                first["memory"] += memory.rerank(text, ["a", "b"], scores, vector=vectors[text])[0].id == side
    print(f"one side taught by {people}: {first} of {6 * len(PAIRS)}")
    assert first["memory"] >= first["retriever"]
