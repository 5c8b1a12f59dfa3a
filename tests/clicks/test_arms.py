"""Comparing the arms of an A/B test, looked at again and again."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pytest

from kinrank.clicks import arms
from kinrank.clicks.arms import compare_arms, difference_interval, searches_needed

ALPHA = 0.05


def sessions(rng: np.random.Generator, count: int, gain: float = 0.0) -> dict[str, np.ndarray]:
    """Return what sessions of one arm add up to: searches of a user are alike, and users differ much."""
    searches = rng.geometric(0.4, count)
    rate = rng.gamma(1.0, 0.3, count) + gain
    clicked = rng.binomial(searches, np.minimum(rate, 0.95))
    clicks = clicked + rng.poisson(0.3 * clicked)
    first = clicked + rng.poisson(1.5 * clicked)
    return {
        "searches": searches,
        "clicks": clicks,
        "without": searches - clicked,
        "clicked": clicked,
        "first": first,
        "conversions": rng.binomial(clicked, 0.1),
        "value": np.zeros(count),
    }


def looked_at(rng: np.random.Generator, looks: int, each: int, gain: float) -> list[bool]:
    """Return whether a test with a gain in the second arm was decided at each look."""
    sides = [(arm, sessions(rng, looks * each, added)) for arm, added in (("a", 0.0), ("b", gain))]
    decided = []
    for look in range(1, looks + 1):
        until = look * each
        found = arms._compared({arm: {name: values[:until] for name, values in side.items()} for arm, side in sides})
        decided.append(any(value.decided for value in found.values))
    return decided


def test_null_tests_that_are_looked_at_every_day_rarely_reject():
    """Of 300 tests of equal arms with 20 looks and four values each, at most about 5% ever reject."""
    rng = np.random.default_rng(0)
    rejected = [any(looked_at(rng, looks=20, each=200, gain=0.0)) for _ in range(300)]
    assert np.mean(rejected) <= ALPHA


def test_an_interval_for_one_look_would_reject_far_more_often():
    """The same traffic with ordinary 95% intervals, so that the test above could fail."""
    rng = np.random.default_rng(0)
    rejected = 0
    for _ in range(100):
        sides = [sessions(rng, 28 * 150) for _ in range(2)]
        rejected += any(
            abs(second[0] - first[0]) > 1.96 * np.sqrt(first[1] + second[1])
            for until in range(150, 28 * 150 + 1, 150)
            for first, second in [
                [arms._ratio(side["clicks"][:until] * 1.0, side["searches"][:until] * 1.0) for side in sides]
            ]
        )
    assert rejected > 15


def test_a_gain_is_found_with_the_number_of_searches_that_is_promised():
    rng = np.random.default_rng(1)
    gain = 0.1
    values = rng.binomial(1, 0.4, 100_000).astype(float)
    needed = searches_needed(values, gain)
    found = 0
    for _ in range(300):
        first, second = ((rng.binomial(1, rate, needed).astype(float), np.ones(needed)) for rate in (0.4, 0.4 + gain))
        found += difference_interval(first, second, planned=2 * needed)[0] > 0
    assert found / 300 > 0.75  # 0.8, within 2 standard errors of 300 tests


def test_few_sessions_decide_nothing():
    ones = np.ones(arms.FEWEST - 1)
    assert difference_interval((0 * ones, ones), (ones, ones)) == (-np.inf, np.inf)


def write_ubi(folder: Path) -> list[Path]:
    rng = np.random.default_rng(2)
    queries, events = [], []
    for number in range(1200):
        session, arm = f"s{number // 2}", ["engine", "model"][number // 2 % 2]
        queries.append(
            {"user_query": "car", "query_id": str(number), "client_id": session, "timestamp": "2026-10-01T10:00:00Z",
             "query_response_hit_ids": ["a", "b", "c"], "query_attributes": {"arm": arm}}
        )  # fmt: skip
        if rng.random() < (0.3 if arm == "engine" else 0.8):
            document = "c" if arm == "engine" else "a"
            names = ["click", "click"] + (["purchase"] if number % 3 == 0 else [])
            events += [
                {"action_name": name, "query_id": str(number), "event_attributes": {"object": {"object_id": document}}}
                for name in names
            ]
    paths = [folder / "queries.ndjson", folder / "events.ndjson"]
    for path, lines in zip(paths, (queries, events), strict=True):
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return paths


def test_a_ubi_log_is_compared_by_a_query_attribute(tmp_path: Path):
    found = compare_arms(write_ubi(tmp_path), actions={"click": 1.0, "purchase": 30.0})
    assert (found.first, found.second, found.searches, found.sessions) == ("engine", "model", (600, 600), (300, 300))
    values = {value.name: value for value in found.values}
    assert values["clicks per search"].first == pytest.approx(0.3, abs=0.05)  # a double click is one
    assert values["rank of the first click"].first == 3
    assert values["rank of the first click"].second == 1
    assert values["value per search"].second == pytest.approx(30 * values["conversions per search"].second)
    assert "model is better in clicks per search" in found.verdict
    assert "model is better in searches without a click" in found.verdict
