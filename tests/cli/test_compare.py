from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kinrank as library
from kinrank.data.queryset import QuerySet
from kinrank.data.trec import run_from_scores, write_run
from kinrank.measure import NDCG, compare_paired
from kinrank.registry import import_extra
from tests.study.worlds import in_families

KNN = "knn(n_neighbors=5)"
MEASURE = NDCG @ 10


@pytest.fixture
def judged(workdir: Path) -> QuerySet:
    queries = QuerySet.open("test")
    write_run(run_from_scores(queries, library.load("single").predict(queries)), "single.run")
    return queries


def values(queries: QuerySet, name: str):
    return MEASURE.per_query(library.load(name).predict(queries), queries.grades, queries.offsets)


def test_compare_prints_rankers_models_and_runs_in_one_table(kinrank, judged: QuerySet):
    done = kinrank(
        "compare", "test", "single.run", "./knn", KNN, "single(learner='rankrls')", "--train", "train.parquet"
    )
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["NDCG", "@", "10,", "20", "queries"]
    paired = compare_paired(values(judged, "knn"), values(judged, "single"))
    for row in lines[3:5]:  # the saved model and the newly fitted ranker are equal
        assert row[1:3] == [f"{values(judged, 'knn').mean():.4f}", f"{paired.mean_difference:+.4f}"]
        assert row[-3:] == [str(count) for count in (paired.wins, paired.ties, paired.losses)]
    assert lines[5][2] == "+0.0000"
    assert ["cost", "fit", "(s)"] in [line[:3] for line in lines]
    assert "paired t-test against single.run" in done.stdout
    assert "Holm: corrected for these 3 tests" in done.stdout


def test_compare_shows_how_much_of_the_top_is_not_judged(kinrank, judged: QuerySet):
    marked = judged.replace(y=np.where(np.arange(judged.n_rows) % 2, judged.grades, np.nan).astype(np.float32))
    marked.save("marked")
    done = kinrank("compare", "marked", "./single", "./knn")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("50.0%") == 2  # ten candidates a query, half of them judged
    zero = judged.replace(y=marked.grades)
    assert f"{values(zero, 'knn').mean():.4f}" in done.stdout


def test_compare_on_folds_prints_json(kinrank, judged: QuerySet):
    names = ["single()", KNN, "knn(n_neighbors=9)"]
    done = kinrank("compare", "test", *names, "--folds", 2, "--json", "--measure", "NDCG@10", "--measure", "AP")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["queries"], record["baseline"], record["measures"]) == (20, "single()", ["NDCG @ 10", "AP"])
    assert len(record["differences"]) == 4
    assert [each["origin"] for each in record["entrants"]] == ["ranker", "ranker", "ranker"]
    assert all(each["cost"]["fit_seconds"] > 0 for each in record["entrants"])
    table = kinrank("compare", "test", *names, "--folds", 2, "--baseline", KNN)
    assert f"paired t-test against {KNN}" in table.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("single()",), "'single()' must be fitted: add --train DATA or --folds N"),
        (
            ("single",),
            "'single' is both a ranker and a path: write './single' for the path or 'single()' for the ranker",
        ),
        (("single()", "--train", "test"), "20 of 20 test queries were seen in training"),
        (("single()", "--train", "train.parquet", "--folds", 2), "--train and --folds cannot be combined"),
        (("svmrank", "--folds", 2), "'svmrank' is not a model folder, a run file or a ranker"),
        (("single(penalty=1)", "--folds", 2), "cannot read ranker 'single(penalty=1)'"),
    ],
)
def test_wrong_input_is_an_error(kinrank, judged: QuerySet, args, message: str):
    done = kinrank("compare", "test", *args)
    assert done.exit_code == 2
    assert message in done.stderr


def test_testing_a_model_on_its_training_queries_is_an_error(kinrank, judged: QuerySet):
    done = kinrank("compare", "train.parquet", "./knn")
    assert done.exit_code == 2
    assert "./knn: 40 of 40 test queries are in this model's training data" in done.stderr


def test_model_with_unknown_training_queries_causes_a_warning(kinrank, judged: QuerySet):
    library.CellRanker(9, n_cells=4).fit(library.read_parquet("train.parquet")).save("cells")
    done = kinrank("compare", "test", "./cells", "./knn")
    assert done.exit_code == 0
    assert "./cells: its training queries are unknown" in done.stderr
    assert "./knn: its training" not in done.stderr


def test_compare_keeps_families_together_where_an_entrant_remembers(kinrank, workdir: Path):
    import_extra("lightgbm", "lightgbm")
    in_families(np.arange(60) // 3).save("alike")
    names = ["single()", "lightgbm-memory"]
    done = kinrank("compare", "alike", *names, "--folds", 2)
    assert done.exit_code == 0, done.stderr
    assert "60 queries are of 20 families of similar texts" in done.stderr
    assert "p: paired t-test against single(), by 20 groups of queries" in done.stdout
    assert f"{names[1]} vs. single(): none of the 60 queries has a near training query" in done.stdout
    split = kinrank("compare", "alike", *names, "--folds", 2, "--no-families")
    assert split.exit_code == 0, split.stderr
    assert "p: paired t-test against single()\n" in split.stdout
    [line] = [line for line in split.stdout.splitlines() if line.startswith(f"{names[1]} vs. single(): +0.")]
    assert "queries with a near training query (similarity above 0.6), " in line
    assert line.endswith(" without one")
    asked = kinrank("compare", "alike", "single()", KNN, "--folds", 2, "--families")
    assert "by 20 groups of queries" in asked.stdout
    assert "near training query" not in asked.stdout


def test_compare_takes_a_group_with_most_queries(kinrank, camps: QuerySet, workdir: Path):
    together = np.where(np.arange(60) < 42, 0, np.arange(60))
    camps.replace(query_columns={"movie": together}).save("one")
    done = kinrank("compare", "one", "single()", KNN, "--folds", 4, "--group", "movie")
    assert done.exit_code == 0, done.stderr
    assert "one group has 42 of 60 queries, more than a part of 15" in done.stderr
    assert "by 19 groups of queries" in done.stdout


def test_queries_that_a_model_was_trained_on_are_left_out_if_asked(kinrank, camps: QuerySet, workdir: Path):
    library.KnnRanker(n_neighbors=5).fit(camps[40:55]).save("newer")  # trained on 15 of the 20 test queries
    refused = kinrank("compare", "test", "./newer", "./knn")
    assert refused.exit_code == 2
    assert "leave them out with leaks='drop' (--leaks drop on the command line)" in refused.stderr
    done = kinrank("compare", "test", "./newer", "./knn", "--leaks", "drop")
    assert done.exit_code == 0, done.stderr
    assert "15 of 20 test queries are left out: models were trained on them (./newer 15)" in done.stderr
    assert done.stdout.startswith("NDCG @ 10, 5 queries")
    library.KnnRanker(n_neighbors=5).fit(camps[40:]).save("newer")
    none_left = kinrank("compare", "test", "./newer", "./knn", "--leaks", "drop")
    assert none_left.exit_code == 2
    assert "all 20 test queries are in the training data of a model" in none_left.stderr


def test_the_engine_is_what_runs_today(kinrank, judged: QuerySet):
    """Found by the rank that kinrank log writes, or named by a feature; a verdict goes from today to what to use."""
    rank = np.concatenate([np.arange(size) + 1 for size in np.diff(judged.offsets)])
    judged.replace(doc_columns={"engine_rank": rank}).save("logged")
    done = kinrank("compare", "logged", "./knn")
    assert done.exit_code == 0, done.stderr
    order = MEASURE.per_query(-rank.astype(float), judged.grades, judged.offsets).mean()
    today, command = done.stdout.splitlines()[-4:-2]
    assert today.startswith(f"Today: the engine as it is {order:.4f}. Recommended: ./knn ")
    assert command == "  kinrank admin models STORE --publish ./knn"
    kept = kinrank("compare", "logged", "./knn", "./single", "--baseline", "./knn")
    assert "Today: ./knn " in kept.stdout
    assert "Keep it: that another entrant is better is not shown." in kept.stdout
    assert "the engine as it is" in kept.stdout
    named = kinrank("compare", "test", KNN, "single()", "--engine-feature", "f1", "--train", "train.parquet")
    assert named.exit_code == 0, named.stderr
    assert "Today: the engine as it is " in named.stdout
    assert "kinrank train train.parquet --ranker knn --model model --set n_neighbors=5" in named.stdout
    lost = kinrank("compare", "test", "./knn", "--baseline", "engine")
    assert lost.exit_code == 2
    assert "name it with --engine-feature FEATURE" in lost.stderr
