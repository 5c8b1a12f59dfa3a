from __future__ import annotations

import json
from pathlib import Path

import kinrank as library
from kinrank.data.queryset import QuerySet


def test_tune_shows_trials_and_train_takes_the_winner(kinrank, camps: QuerySet, workdir: Path):
    args = ("tune", "train.parquet", "--study", "study", "--try", "single", "--try", "knn", "--folds", 2, "--trials", 5)
    done = kinrank(*args)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("NDCG @ 10, 5 trials; 5 trials were made")
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
    assert again.stderr == ""  # all trials are there
    said = json.loads(again.stdout)
    assert (len(said["trials"]), said["best"]["quality"], said["nested"]) == (5, 1.0, None)


def test_nested_and_validation(kinrank, workdir: Path):
    args = ("tune", "train.parquet", "--try", "knn", "--folds", 2, "--trials", 1)
    done = kinrank(*args, "--study", "a", "--nested", "--reference", "0")
    assert "tuned without the queries tested on 0.9" in done.stdout
    assert (
        json.loads(kinrank(*args, "--study", "a", "--nested", "--reference", "0", "--json").stdout)["nested"]["p"]
        < 0.01
    )
    assert (Path("a") / "nested" / "outer-1" / "settings.json").is_file()
    chosen = kinrank(*args, "--study", "b", "--validate", "test.txt", "--json")
    assert json.loads(chosen.stdout)["best"]["quality"] == 1.0


def test_what_makes_no_sense_is_refused(kinrank, workdir: Path):
    done = kinrank("tune", "train.parquet", "--study", "study", "--try", "svm")
    assert done.exit_code == 2
    assert "unknown family 'svm'" in done.stderr
    Path("settings.json").write_text('{"ranker": "single", "settings": {}}')
    clash = kinrank("train", "train.parquet", "--model", "m", "-s", "settings.json", "--ranker", "knn")
    assert "settings.json is for ranker 'single', --ranker says 'knn': leave one out" in clash.stderr
