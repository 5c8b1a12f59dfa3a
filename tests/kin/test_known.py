"""Indexes of known queries pass the checks of their contract; what is special of vectors."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from kinrank.errors import DataError
from kinrank.kin import vectors
from kinrank.kin.known import KnownIndex
from kinrank.kin.letters import QueryIndex
from kinrank.kin.vectors import VectorIndex, unit_vectors
from tests.kin.known_checks import CHECKS, World

WORDS = [
    "toy",
    "story",
    "iron",
    "man",
    "spider",
    "frozen",
    "cast",
    "of",
    "the",
    "dvd",
    "über",
    "heat",
    "part",
    "trailer",
]


def points(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, 12)).astype(np.float32)


def cosines(index: KnownIndex, asked: Any, items: Any) -> np.ndarray:
    one, other = np.float64(asked), np.float64(items)
    return (one @ other.T) / np.linalg.norm(one, axis=1)[:, None] / np.linalg.norm(other, axis=1)


def texts(n: int, seed: int) -> list[str]:
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 5))) + f" {rng.integers(3 * n)}" for _ in range(n)]


def tfidf(index: KnownIndex, asked: Any, items: Any) -> np.ndarray:
    one, other = (
        sp.csr_array((weight, term, offsets), shape=(len(each), 2**22), dtype=np.float64)
        for each in (asked, items)
        for offsets, term, weight in [index.describe(each)]
    )
    return (one @ other.T).toarray()


WORLDS = {"letters": World(QueryIndex, texts, tfidf), "vectors": World(VectorIndex, points, cosines)}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", list(WORLDS))
def test_index_passes_check(name: str, check: Callable[..., None], tmp_path: Path):
    folder = (tmp_path / "index",) if "path" in inspect.signature(check).parameters else ()
    check(WORLDS[name], *folder)


def test_many_vectors_are_found_by_a_graph(monkeypatch: pytest.MonkeyPatch):
    items, asked = points(5000, 0), points(50, 1)
    exact = VectorIndex().fit(items).nearest(asked, 20)
    monkeypatch.setattr(vectors, "_COMPARED", 1000)
    index = VectorIndex().fit(items[:4000]).add(items[4000:])
    assert index._graph.ntotal == 4000
    stored = index.get_state()
    assert all(not array.dtype.hasobject for array in stored.values())
    for each in (index, VectorIndex().set_state(stored), index.remove([]).add(points(1, 5) * 0.0)):
        places, similarities = each.nearest(each.describe(asked), 20)
        assert np.mean([np.isin(a, b).mean() for a, b in zip(exact[0], places, strict=True)]) >= VectorIndex.recall
        assert np.all(np.diff(similarities, axis=1) <= 0)
    few = np.random.default_rng(2).random(5000) < 0.01
    monkeypatch.setattr(vectors, "_COMPARED", 10**9)
    expected = VectorIndex().fit(items).nearest(asked, 20, few)
    np.testing.assert_array_equal(index.nearest(index.describe(asked), 20, few)[0], expected[0])


@pytest.mark.parametrize(
    ("items", "message"),
    [([[1.0, np.nan]], "rows of finite numbers"), ([[1.0, 2.0, 3.0]], "must have 2 numbers, got 3: use one encoder")],
)
def test_vectors_that_cannot_be_compared_raise(items: list, message: str):
    index = VectorIndex().fit([[1.0, 0.0]])
    with pytest.raises(DataError, match=message):
        index.add(items)
    with pytest.raises(DataError, match=message):
        index.describe(items)


def test_vectors_in_fewer_directions_find_nearly_all_of_the_nearest(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(vectors, "_SKETCHED", 2000)
    monkeypatch.setattr(vectors, "_DIRECTIONS", 16)
    rng = np.random.default_rng(0)
    mixed = (rng.normal(size=(3000, 12)) @ rng.normal(size=(12, 40)) + 0.3 * rng.normal(size=(3000, 40))).astype(
        np.float32
    )
    at_once, grown = VectorIndex().fit(mixed), VectorIndex().fit(mixed[:1990])
    for start in range(1990, 3000, 101):
        grown = grown.add(mixed[start : start + 101])
    opened = VectorIndex().set_state(grown.get_state())
    exact = unit_vectors(mixed) @ unit_vectors(mixed[:50]).T
    asked = at_once.describe(mixed[:50])
    found = at_once.nearest(asked, 20)[0]
    wanted = np.argsort(-exact, axis=0)[:20].T
    assert np.mean([len(set(one) & set(other)) / 20 for one, other in zip(found, wanted, strict=True)]) > 0.95
    for other in (grown, opened):
        np.testing.assert_array_equal(other.nearest(asked, 20)[0], found)
    allowed = np.arange(3000) % 2 == 0
    assert (at_once.nearest(asked, 20, allowed)[0] % 2 == 0).all()
