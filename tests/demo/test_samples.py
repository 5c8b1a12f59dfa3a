"""Sample files of ``kinrank demo --write``: each is read by what it is for."""

from __future__ import annotations

import csv
import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from kinrank.cli.app import app
from kinrank.clicks import read_clicks
from kinrank.data.parquet import read_parquet
from kinrank.demo.samples import write_samples
from kinrank.engines import FeatureSet
from kinrank.study._leaks import find_leaks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    contents = write_samples(folder, train=20, test=10, searched=5)
    assert set(contents) == {file.name for file in folder.iterdir()}
    return folder


def records(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_no_query_has_the_features_of_another_one(folder: Path):
    hits = [block.X.tobytes() for name in ("train", "test") for block in read_parquet(folder / f"{name}.parquet")]
    assert len(set(hits)) == len(hits)
    queries = read_parquet(folder / "train.parquet")
    for held_out in range(4):
        mask = np.arange(len(queries)) % 4 == held_out
        assert len(find_leaks(queries[~mask], queries[mask]).seen_queries) == 0


@pytest.mark.slow
def test_commands_that_doctor_prints_for_the_sample_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """``kinrank demo --write``, ``kinrank doctor`` of its table, and the first command that this prints."""
    monkeypatch.chdir(tmp_path)
    write_samples(Path("samples"), train=40, test=10, searched=5)
    checked = CliRunner().invoke(app, ["doctor", "samples/train.parquet"])
    assert checked.exit_code == 0, checked.output
    [command] = [line for line in checked.stdout.splitlines() if line.startswith("kinrank headroom")]
    answered = CliRunner().invoke(app, shlex.split(command)[1:])
    assert answered.exit_code == 0, answered.output
    assert "NDCG @ 10, 40 queries" in answered.stdout


def test_bulk_has_an_action_before_each_movie(folder: Path):
    lines = records(folder / "bulk.ndjson")
    assert len(lines) == 5000
    assert lines[0] == {"index": {"_index": "movies", "_id": "27205"}}
    assert lines[1]["title"] == "Inception"
    assert "id" not in lines[1]


def test_tables_name_queries_and_movies(folder: Path):
    train, test = read_parquet(folder / "train.parquet"), read_parquet(folder / "test.parquet")
    assert (len(train), len(test)) == (20, 10)
    assert all(np.add.reduceat(train.grades, train.offsets[:-1]) > 0)
    assert train.doc_title is not None
    assert set(train.query_columns) == {"text", "movie"}


def test_judgments_are_the_same_in_both_formats(folder: Path):
    body = json.loads((folder / "workbench.json").read_text())
    assert body["type"] == "IMPORT_JUDGMENT"
    pairs = {(each["query"], rated["docId"]) for each in body["judgmentRatings"] for rated in each["ratings"]}
    with (folder / "judgments.csv").open() as lines:
        assert {(row["query"], row["doc_id"]) for row in csv.DictReader(lines)} == pairs
    assert len({query for query, _ in pairs}) == 30


def test_features_are_those_of_the_movies(folder: Path):
    movie = records(folder / "bulk.ndjson")[1]
    features = FeatureSet.parse((folder / "features.toml").read_text())
    assert {"title", "votes"} <= set(features.names)
    assert {"title", "overview", "votes", "rating", "year"} <= set(movie)


def test_click_log_is_read_whole(folder: Path):
    counts = read_clicks([folder / "ubi_queries.ndjson", folder / "ubi_events.ndjson"])
    asked = {record["user_query"] for record in records(folder / "ubi_queries.ndjson")}
    assert set(counts.query.to_pylist()) == asked
    assert counts.clicks.sum() == len(records(folder / "ubi_events.ndjson"))
