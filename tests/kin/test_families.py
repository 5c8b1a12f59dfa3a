"""Families of queries: near-duplicates of one center, by letters or by meaning, without chains."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from kinrank.kin.families import families_of
from kinrank.kin.letters import nearest_similarity


def test_a_chain_is_not_one_family():
    # Each is near the next one, and far from all others.
    words = ["frozen", "winter", "castle", "dragon", "knight", "island", "pirate", "silver", "engine", "planet"]
    texts = [" ".join(words[i : i + 4]) for i in range(7)]
    assert all(nearest_similarity([one], [two])[0] > 0.6 for one, two in pairwise(texts))
    families = families_of(texts)
    assert len(np.unique(families)) > 1
    assert np.bincount(families).max() <= 3
    angles = np.radians(np.arange(0, 180, 30))  # neighbors have a cosine of .87, the next ones of .5
    chained = families_of([str(number) * 5 for number in range(6)], np.column_stack([np.cos(angles), np.sin(angles)]))
    assert np.bincount(chained).max() == 3


def test_members_are_near_their_center_and_centers_are_not_near_each_other():
    rng = np.random.default_rng(0)
    vectors = np.repeat(rng.normal(size=(20, 8)), 10, axis=0) + 0.2 * rng.normal(size=(200, 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    texts = [f"{number:03d}" * 3 for number in rng.permutation(200)]
    families = families_of(texts, vectors)
    near = (vectors @ vectors.T > 0.8) | (np.array([nearest_similarity(texts, [text]) for text in texts]) > 0.6)
    for family in np.unique(families):
        members = np.flatnonzero(families == family)
        assert family == members[0]
        assert near[np.ix_(members, members)].all(axis=1).any()  # one of them is the center
    assert 15 < len(np.unique(families)) < 60


def test_queries_of_one_text_are_one_family_however_many():
    texts = ["toy story"] * 50 + ["Toy  Story"] * 50 + ["heat"]
    assert families_of(texts).tolist() == [0] * 100 + [100]


def test_either_kind_of_near_duplicate_makes_a_family():
    vectors = [[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [-1.0, 0.0]]
    texts = ["cheap car", "inexpensive automobile", "banana bread", "banana bread recipe"]
    assert families_of(texts, vectors).tolist() == [0, 0, 2, 2]
    assert families_of(texts).tolist() == [0, 1, 2, 2]
