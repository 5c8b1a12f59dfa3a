"""Checks that every index of known queries must pass, by being registered in `WORLDS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kinrank import folder
from kinrank.kin.known import KnownIndex


@dataclass(frozen=True)
class World:
    """An index, and queries that it can know."""

    index: Callable[[], KnownIndex]
    items: Callable[[int, int], Any]
    """Return so many queries, by a seed."""
    similarity: Callable[[KnownIndex, Any, Any], np.ndarray]
    """Return the similarity of each of some queries to each known one, computed in another way."""


def found(index: KnownIndex, asked: Any, n: int = 10, **options: Any) -> tuple[list, list]:
    places, similarities = index.nearest(index.describe(asked), n, **options)
    return places.tolist(), similarities.tolist()


def assert_same(one: tuple[list, list], other: tuple[list, list]) -> None:
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_allclose(one[1], other[1], atol=1e-6)


def assert_nearest(world: World, index: KnownIndex, items: Any, asked: Any, n: int, kept: np.ndarray | None) -> None:
    """Compare with the best of all pairs; of those that differ by rounding, either may come first."""
    expected = np.maximum(world.similarity(index, asked, items), 0.0)
    if kept is not None:
        expected = np.where(kept, expected, 0.0)
    places, similarities = index.nearest(index.describe(asked), n, kept)
    assert places.shape == similarities.shape == (len(asked), n)
    np.testing.assert_allclose(similarities, -np.sort(-expected, axis=1)[:, :n], atol=2e-6)
    assert np.array_equal(places < 0, similarities == 0)
    own = np.where(places >= 0, np.take_along_axis(expected, np.maximum(places, 0), axis=1), 0.0)
    np.testing.assert_allclose(own, similarities, atol=2e-6)
    ties = (similarities[:, 1:] == similarities[:, :-1]) & (places[:, 1:] >= 0)
    assert np.all(places[:, 1:][ties] > places[:, :-1][ties])
    assert all(len(set(row[row >= 0].tolist())) == (row >= 0).sum() for row in places)


def check_finds_the_nearest(world: World) -> None:
    items, asked = world.items(700, 0), world.items(30, 1)
    assert_nearest(world, world.index().fit(items), items, asked, 12, None)


def check_finds_the_nearest_of_the_allowed(world: World) -> None:
    items, asked = world.items(600, 0), world.items(30, 1)
    for share in (0.5, 0.02):
        assert_nearest(world, world.index().fit(items), items, asked, 12, np.random.default_rng(2).random(600) < share)


def check_leaves_out_the_same_key(world: World) -> None:
    items = world.items(300, 0)
    index = world.index().fit(items)
    keys = np.arange(300, dtype=np.uint64) // 3
    places = np.array(found(index, items, 5, keys=(keys, keys))[0])
    assert np.all((places < 0) | (keys[np.maximum(places, 0)] != keys[:, None]))
    assert np.all((places >= 0).any(axis=1))


def check_batch_equals_one_by_one(world: World) -> None:
    items, asked = world.items(600, 0), world.items(20, 1)
    index = world.index().fit(items)
    places, similarities = index.nearest(index.describe(asked), 9)
    for row in range(20):
        one = index.nearest(index.describe(asked[row : row + 1]), 9)
        np.testing.assert_array_equal(one[0][0], places[row])
        np.testing.assert_allclose(one[1][0], similarities[row], atol=1e-6)


def check_adding_equals_fitting(world: World) -> None:
    items, asked = world.items(1100, 0), world.items(20, 1)
    whole = world.index().fit(items[:2]).of(items)
    for steps in ([1], [0, 700, 1099], list(range(2, 1100, 149))):
        index = whole.of(items[: steps[0]])
        for start, stop in zip(steps, [*steps[1:], 1100], strict=True):
            index = index.add(items[start:stop])
        assert len(index) == 1100
        assert_same(found(index, asked), found(whole, asked))


def check_one_more_is_found_at_once(world: World) -> None:
    items = world.items(600, 0)
    index = world.index().fit(items[:500])
    for place in range(500, 600):
        index = index.add(items[place : place + 1])
        places, similarities = found(index, items[place : place + 1], 600)
        assert similarities[0][places[0].index(place)] > 0.999


def check_the_index_before_stays_as_it_was(world: World) -> None:
    items, asked = world.items(800, 0), world.items(10, 1)
    index = world.index().fit(items[:400])
    before = found(index, asked)
    one, other = index.add(items[400:600]), index.add(items[600:])
    assert found(one.remove(range(100)), asked) != before
    assert found(index, asked) == before
    assert (len(index), len(one), len(other)) == (400, 600, 600)
    assert_same(found(one, asked), found(index.of(items[:600]), asked))
    assert_same(found(other, asked), found(index.of(np.concatenate([np.array(items[:400]), items[600:]])), asked))


def check_removed_ones_are_not_found(world: World) -> None:
    items, asked = world.items(700, 0), world.items(20, 1)
    removed = np.random.default_rng(3).random(700) < 0.3
    index = world.index().fit(items[:300])
    index = index.remove(np.flatnonzero(removed[:300])).add(items[300:])
    index = index.remove((300 + np.flatnonzero(removed[300:])).tolist())
    assert len(index) == 700
    assert_nearest(world, index, items, asked, 15, ~removed)
    kept = np.flatnonzero(~removed)
    places, similarities = found(index.take(kept), asked)
    assert_same((np.where(np.array(places) < 0, -1, kept[places]), similarities), found(index, asked))


def check_state_is_restored_from_a_folder(world: World, path: Path) -> None:
    items, asked = world.items(900, 0), world.items(20, 1)
    index = world.index().fit(items[:800]).add(items[800:]).remove([3, 4, 850])
    folder.write(path, "test", {}, index.get_state())
    opened = world.index().set_state(folder.read(path, "test")[1])
    assert len(opened) == 900
    assert_same(found(opened, asked), found(index, asked))
    more = world.items(300, 4)
    assert_same(found(opened.add(more), asked), found(index.add(more), asked))


def check_nothing_is_known_at_first(world: World) -> None:
    items = world.items(10, 0)
    index = world.index().fit(items).of(items[:0])
    assert len(index) == 0
    assert found(index, items[:2], 3) == ([[-1] * 3] * 2, [[0.0] * 3] * 2)
    assert found(index.add(items), items[:1], 1)[0] == [[0]]
    assert np.shape(found(index.add(items), items[:0], 3)[0]) == (0,)


CHECKS: list[Callable[..., None]] = [value for name, value in list(globals().items()) if name.startswith("check_")]
