from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from examples.movies import features
from kinrank.cli import app
from kinrank.cli.train import DEFAULT_RANKER
from kinrank.rankers import RANKERS
from kinrank.registry.notation import parse_settings

EXAMPLES_DIR = Path(__file__).parents[2] / "examples"


def test_cluster_example_uses_existing_options_and_parameters():
    manifest = yaml.safe_load((EXAMPLES_DIR / "kuberay.yaml").read_text())
    program, command, *words = manifest["spec"]["entrypoint"].split()
    help_page = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "300"}).output
    assert program == "kinrank"
    assert {word for word in words if word.startswith("--")} <= set(re.findall(r"--[\w-]+", help_page))
    settings = [word for word in words if "=" in word]
    assert RANKERS[DEFAULT_RANKER](**parse_settings(RANKERS[DEFAULT_RANKER], settings)).settings["n_cells"] == 65_536


def test_movie_features_by_hand():
    numbers = {"year": 1979, "votes": 9, "rating": 8.5, "popularity": 0, "budget": None}
    texts = {"overview": None, "tags": ["ships"], "genres": [], "director": "R. Scott", "actors": [], "characters": []}
    movies = [{"title": title, **texts, **numbers} for title in ("Alien", "The Aliens & Monsters")]
    assert features.stems("The Aliens of a 2 ships") == ["alien", "ship"]
    query = features.stems("alien monster 1979")
    row = dict(zip(features.NAMES, features.Features(movies).of(query, 1, 0.25), strict=True))
    norm = 0.9 * (1 - 0.4 + 0.4 * 2 / 1.5)  # the titles have one stem and two
    both, one = math.log(1 + 0.5 / 2.5), math.log(1 + 1.5 / 1.5)
    assert row["bm25_title"] == pytest.approx((both + one) / (1 + norm))
    assert row["bm25_overview"] == row["bm25_actors"] == 0
    norm = 0.9 * (1 - 0.4 + 0.4 * 5 / 4.5)  # ship, scott and the year are in both
    assert row["bm25_all"] == pytest.approx((2 * both + one) / (1 + norm))
    assert row["cover_title"] == pytest.approx(2 / 3)
    assert row["cover_title_reverse"] == 1
    assert list(row.values())[13:] == pytest.approx([0.25, 1979, math.log(10), 8.5, 0, 0, 4])
