from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv

import kinrank as library
from kinrank.cli.train import DEFAULT_RANKER
from kinrank.data.queryset import QuerySet
from kinrank.data.trec import read_run, run_from_scores
from kinrank.memory.evidence import Evidence
from kinrank.parallel import usable_threads
from kinrank.rankers import RANKERS
from kinrank.registry import import_extra
from tests.rankers.test_kin_memory import shop
from tests.study import worlds


def test_train_writes_the_same_model_as_python(kinrank, camps: QuerySet, workdir: Path):
    settings = ["--ranker", "knn", "--set", "n_neighbors=5", "--set", "learner=rankrls"]
    done = kinrank("train", "train.parquet", "--model", "m", *settings)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == ""
    assert "QuerySet(40 queries, 400 rows, 2 features, judged)" in done.stderr
    assert "fitted in" in done.stderr
    made = library.load("m")
    assert type(made) is RANKERS["knn"]
    np.testing.assert_array_equal(made.predict(camps), library.load("knn").predict(camps))


def test_default_ranker_prints_its_remarks(kinrank, workdir: Path):
    import_extra("lightgbm", "lightgbm")
    done = kinrank("train", "train.parquet", "--model", "m")
    assert done.exit_code == 0, done.stderr
    assert type(library.load("m")) is RANKERS[DEFAULT_RANKER]
    assert "m: NDCG @ 10 out of fold: trees" in done.stderr
    assert "m: what ranks: " in done.stderr


def test_a_table_with_brands_and_what_people_chose_are_all_it_takes(kinrank, workdir: Path):
    import_extra("lightgbm", "lightgbm")
    judged = shop()
    table = judged.to_table()
    names = [name.removeprefix("document.").removeprefix("query.") for name in table.column_names]
    csv.write_csv(table.rename_columns(names).drop_columns("day"), "data.csv")
    texts = judged.query_columns["text"][judged.query_of_row]
    evidence = Evidence.from_cells(texts, judged.doc_id, np.full(judged.n_rows, 9.0), 6.0 * judged.grades)
    evidence.save("evidence")
    done = kinrank("train", "data.csv", "--evidence", "evidence", "--columns", "keys=brand", "--model", "model")
    assert done.exit_code == 0, done.stderr
    for part in ("everyone: ", "kin: kept", "keys: ", "weights per query: ", "this query: a prediction counts as"):
        assert f"model: {part}" in done.stderr
    model = library.load("model")
    assert list(model.keys) == ["brand"]
    assert "chosen 6 times in 9 looks" in kinrank("explain", "model", "data.csv").stdout


def test_validation_compares_with_one_linear_model(kinrank, workdir: Path):
    settings = ["--ranker", "knn", "--set", "n_neighbors=5"]
    done = kinrank("train", "train.parquet", "--model", "m", *settings, "--validate", "test.txt")
    single = library.load("single").score(QuerySet.open("test"))
    assert f"test.txt: 20 queries, NDCG @ 10: one linear model {single:.4f}, knn 1.0000\n" in done.stderr
    assert f"test.txt: knn gains {1 - single:+.4f} over one linear model (95% interval" in done.stderr


def test_one_linear_model_is_kept_without_a_gain(kinrank, workdir: Path):
    # With all queries as neighbors the local model is the global one.
    settings = ["--ranker", "knn", "--set", "n_neighbors=40", "--set", "neighbor_weights=uniform"]
    done = kinrank("train", "train.parquet", "--model", "m", *settings, "--validate", "test")
    assert "test: knn and one linear model have the same mean (95% interval" in done.stderr
    assert "test: kept one linear model (without --validate, knn is kept)" in done.stderr
    assert "m: ranker 'single'" in done.stderr
    kept, single = (library.load(model).predict(QuerySet.open("test")) for model in ("m", "single"))
    np.testing.assert_allclose(kept, single, rtol=1e-6)


def test_training_queries_cannot_validate(kinrank, workdir: Path):
    done = kinrank("train", "train.parquet", "--model", "m", "--ranker", "knn", "--validate", "train.parquet")
    assert done.exit_code == 2
    assert "40 of 40 test queries were seen in training" in done.stderr
    assert not Path("m").exists()


def test_one_linear_model_is_not_compared_with_itself(kinrank, workdir: Path):
    done = kinrank("train", "train.parquet", "--model", "m", "--ranker", "single", "--validate", "test")
    assert done.exit_code == 0, done.stderr
    assert "one linear model" not in done.stderr


def test_ranker_with_a_regressor_is_compared_with_one_linear_model(kinrank, workdir: Path):
    options = ["--ranker", "atvt", "--set", "learner=kernel-ridge", "--validate", "test"]
    done = kinrank("train", "train.parquet", "--model", "m", *options)
    assert done.exit_code == 0, done.stderr
    assert "one linear model" in done.stderr


def test_kin_is_compared_with_trees_and_with_itself_without_local_models(kinrank, workdir: Path):
    import_extra("lightgbm", "lightgbm")
    settings = ["--set", "n_neighbors=5", "--set", "n_members=2"]
    done = kinrank("train", "train.parquet", "--model", "m", *settings, "--validate", "test")
    assert done.exit_code == 0, done.stderr
    assert re.search(
        r"test: 20 queries, NDCG @ 10: one linear model .*, LightGBM .*, kin without .*, kin ", done.stderr
    )
    assert "test: kept " in done.stderr or "Use kin." in done.stderr


def test_tuned_trees_are_kept_as_a_model_that_can_be_loaded(kinrank, workdir: Path):
    import_extra("lightgbm", "lightgbm")
    queries = worlds.for_trees(160)
    queries[:100].save("curved_train")
    queries[100:].save("curved_test")
    options = ["--set", "n_members=2", "--validate", "curved_test"]
    done = kinrank("train", "curved_train", "--model", "m", *options)
    assert "curved_test: kept LightGBM (without --validate, kin is kept)" in done.stderr
    score = float(re.search(r", LightGBM (\d\.\d+)", done.stderr)[1])
    assert library.load("m").score(queries[100:]) == pytest.approx(score, abs=1e-4)


def test_damaged_model_is_replaced(kinrank, workdir: Path):
    next(Path("single").rglob("*.npy")).unlink()
    assert kinrank("train", "train.parquet", "--model", "single", "--ranker", "single").exit_code == 0
    library.load("single")


@pytest.mark.parametrize("data", ["test", "test.txt"])
def test_rank_prints_a_run_of_the_predicted_scores(kinrank, camps: QuerySet, workdir: Path, data: str):
    done = kinrank("rank", "knn", data)
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    Path("printed.run").write_text(done.stdout)
    run = read_run("printed.run")
    expected = run_from_scores(camps[40:], library.load("knn").predict(camps[40:]), "knn")
    assert run.tag == "knn"
    for part in ("qid", "doc_id", "rank"):
        np.testing.assert_array_equal(getattr(run, part), getattr(expected, part))
    np.testing.assert_allclose(run.score, expected.score, atol=1e-9)


def test_rank_writes_the_run_to_a_file(kinrank, workdir: Path):
    printed = kinrank("rank", "knn", "test").stdout
    done = kinrank("rank", "knn", "test", "--out", "out.run.gz")
    assert (done.stdout, done.stderr) == ("", "out.run.gz: 200 documents of 20 queries\n")
    Path("printed.run").write_text(printed)
    np.testing.assert_array_equal(read_run("out.run.gz").score, read_run("printed.run").score)


def test_batch_size_does_not_change_the_run(kinrank, workdir: Path, monkeypatch: pytest.MonkeyPatch):
    whole = kinrank("rank", "single", "test").stdout
    monkeypatch.setattr("kinrank.cli.rank.QUERIES_AT_ONCE", 3)
    assert kinrank("rank", "single", "test").stdout == whole


def test_feature_missing_from_a_letor_file_is_zero(kinrank, workdir: Path):
    Path("sparse.txt").write_text("0 qid:1 1:0.5 #docid = a\n0 qid:1 1:0.25 #docid = b\n")
    done = kinrank("rank", "single", "sparse.txt")
    assert done.exit_code == 0, done.stderr
    assert len(done.stdout.splitlines()) == 2


def test_train_uses_the_number_of_threads_of_the_environment(workdir: Path, kinrank, monkeypatch: pytest.MonkeyPatch):
    seen = []
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    fit = library.SingleRanker.fit
    monkeypatch.setattr(
        library.SingleRanker, "fit", lambda *args, **kwargs: (seen.append(usable_threads()), fit(*args, **kwargs))[1]
    )
    done = kinrank("train", "train.parquet", "--model", "one", "--ranker", "single")
    assert done.exit_code == 0, done.stderr
    assert seen == [1]


def test_query_log_teaches_the_encoder(kinrank, camps: QuerySet, workdir: Path):
    words = np.array([f"query {i % 7}" for i in range(len(camps))])
    camps.replace(query_columns={**camps.query_columns, "text": words}).save(workdir / "texts")
    Path("log.txt").write_text("blade runner\nblade\n", encoding="utf-8")
    done = kinrank("train", "texts", "--model", "m", "--ranker", "knn", "--query-log", "log.txt")
    assert done.exit_code == 0, done.stderr
    assert "log.txt: 2 queries" in done.stderr
    assert library.load("m").encoder_.encode(["blade"]).any()
    done = kinrank("train", "texts", "--model", "s", "--ranker", "single", "--query-log", "log.txt")
    assert "which ranker 'single' does not use" in done.stderr
    done = kinrank("train", "texts", "--model", "m", "--query-log", "missing.txt")
    assert "--query-log missing.txt: cannot read it as UTF-8 text" in done.stderr


def test_replacing_a_model_is_said(kinrank, workdir):
    first = kinrank("train", "train.parquet", "--model", "m", "--ranker", "single")
    second = kinrank("train", "train.parquet", "--model", "m", "--ranker", "single")
    assert "m: the model there will be replaced" not in first.stderr
    assert "m: the model there will be replaced" in second.stderr
