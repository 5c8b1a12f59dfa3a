from __future__ import annotations

import json
from pathlib import Path

import kinrank as library
from kinrank.data.queryset import QuerySet


def test_train_accepts_the_settings_that_tune_chose(kinrank, camps: QuerySet, workdir: Path):
    args = ("tune", "train.parquet", "--study", "study", "--try", "single", "--try", "knn", "--folds", 2, "--trials", 5)
    done = kinrank(*args)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("NDCG @ 10, 5 trials; reached the limit of 5 trials")
    assert done.stderr.count(" s\n") == 5
    assert "kinrank train train.parquet --settings study/settings.json --model MODEL" in done.stdout
    trained = kinrank(
        "train", "train.parquet", "-s", "study/settings.json", "--model", "tuned", "--set", "missing=mean"
    )
    assert trained.exit_code == 0, trained.stderr
    assert "ranker 'knn'" in trained.stderr
    made = library.load("tuned")
    assert made.get_params()["missing"] == "mean"
    assert made.score(camps[40:].replace(feature_names=made.feature_names_)) == 1.0
    again = kinrank(*args, "--json")
    assert again.stderr == "train.parquet: QuerySet(40 queries, 400 rows, 2 features, judged)\n"  # no trial is repeated
    record = json.loads(again.stdout)
    assert (len(record["trials"]), record["best"]["quality"]) == (5, 1.0)


def test_validation_queries(kinrank, workdir: Path):
    args = ("tune", "train.parquet", "--try", "knn", "--folds", 2, "--trials", 1)
    chosen = kinrank(*args, "--study", "b", "--validate", "test.txt", "--json")
    assert json.loads(chosen.stdout)["best"]["quality"] == 1.0


def test_wrong_input_is_an_error(kinrank, workdir: Path):
    done = kinrank("tune", "train.parquet", "--study", "study", "--try", "svm")
    assert done.exit_code == 2
    assert "unknown family 'svm'" in done.stderr
    done = kinrank("tune", "train.parquet", "--study", "study", "--set", "n_neighbors=5")
    assert "--set n_neighbors: tune chooses it; set reference or missing" in done.stderr
    Path("settings.json").write_text('{"ranker": "single", "settings": {}}')
    clash = kinrank("train", "train.parquet", "--model", "m", "-s", "settings.json", "--ranker", "knn")
    assert "--settings settings.json is for ranker 'single', got --ranker knn: omit one" in clash.stderr
