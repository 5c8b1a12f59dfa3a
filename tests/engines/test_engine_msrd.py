from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.engine_msrd import in_turn, log_all
from examples.movies.prepare import PARTS
from kinrank.engines import FeatureSet
from kinrank.engines.base import Health
from tests.engines.toy import ToyEngine, toy_judgments


class Versioned(ToyEngine):
    """A toy engine with a version and a feature file."""

    def __init__(self, version: str, features: str) -> None:
        super().__init__()
        self.version = version
        self.feature_set = FeatureSet.parse(features)

    def health(self) -> Health:
        return Health(f"elasticsearch {self.version}", "green", 1, 10)


def count_logged(engine: Versioned, work: Path) -> int:
    log_all(engine, {part: toy_judgments(2) for part in PARTS}, work)  # type: ignore[arg-type]
    return len(engine.logged_queries)


def test_log_is_reused_only_for_the_same_features_and_engine(tmp_path: Path):
    title, body = ('[features]\na = { match = "title" }', '[features]\na = { match = "body" }')
    n_queries = 2 * len(PARTS)
    assert count_logged(Versioned("8.12", title), tmp_path) == n_queries
    assert count_logged(Versioned("8.12", title), tmp_path) == 0
    assert count_logged(Versioned("8.12", body), tmp_path) == n_queries
    assert count_logged(Versioned("8.13", body), tmp_path) == n_queries
    (tmp_path / "test.parquet").unlink()
    assert count_logged(Versioned("8.13", body), tmp_path) == 2


def test_each_variant_runs_in_each_position_equally_often():
    ways = ["bare", "one", "four"]
    places = Counter((way, place) for turn in range(12) for place, way in enumerate(in_turn(ways, turn)))
    assert set(places.values()) == {4}
    assert len(places) == 9
