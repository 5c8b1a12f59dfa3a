"""Opposites, codes and versions: what one person taught for one side is not the answer for the other."""

from __future__ import annotations

import pytest

from benchmarks.answers import opposites, pairs_of_opposites


def test_there_are_sixty_pairs():
    pairs = pairs_of_opposites()
    assert len(pairs) == 60
    assert all(len(pair["taught"]) == 2 and len(pair["one"]) == len(pair["other"]) == 3 for pair in pairs)


@pytest.mark.neural
def test_both_sides_taught_once_by_one_person():
    assert opposites("MiniLM")["both sides taught"]["memory"] >= 0.9
