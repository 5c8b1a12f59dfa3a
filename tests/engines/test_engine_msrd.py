"""What the benchmark of the engines promises about itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.engine_msrd import in_turn, log_all
from examples.movies.prepare import PARTS
from kinrank.engines import FeatureSet
from kinrank.engines.base import Health
from tests.engines.toy import ToyEngine, toy_judgments


class Versioned(ToyEngine):
    """The toy as a version of an engine, opened with features."""

    def __init__(self, version: str, features: str) -> None:
        super().__init__()
        self.version = version
        self.feature_set = FeatureSet.parse(features)

    def health(self) -> Health:
        return Health(f"elasticsearch {self.version}", "green", 1, 10)


def n_asked(engine: Versioned, work: Path) -> int:
    log_all(engine, {part: toy_judgments(2) for part in PARTS}, work)  # type: ignore[arg-type]
    return len(engine.asked)


def test_what_was_logged_is_used_again_only_for_the_same_features_and_engine(tmp_path: Path):
    title, body = ('[features]\na = { match = "title" }', '[features]\na = { match = "body" }')
    every = 2 * len(PARTS)
    assert n_asked(Versioned("8.12", title), tmp_path) == every
    assert n_asked(Versioned("8.12", title), tmp_path) == 0
    assert n_asked(Versioned("8.12", body), tmp_path) == every
    assert n_asked(Versioned("8.13", body), tmp_path) == every
    (tmp_path / "test.parquet").unlink()
    assert n_asked(Versioned("8.13", body), tmp_path) == 2


def test_each_way_takes_each_place_equally_often():
    ways = ["bare", "one", "four"]
    places = Counter((way, place) for turn in range(12) for place, way in enumerate(in_turn(ways, turn)))
    assert set(places.values()) == {4}
    assert len(places) == 9
