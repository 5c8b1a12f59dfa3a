from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kinrank as library
from kinrank.data.queryset import QuerySet
from kinrank.data.trec import run_from_scores, write_run
from kinrank.measure import AP, NDCG, compare_paired, evaluate, holm


@pytest.fixture
def judged(workdir: Path) -> QuerySet:
    """The test queries, with knn.run, single.run and noise.run."""
    queries = QuerySet.open("test")
    for name in ("knn", "single"):
        write_run(run_from_scores(queries, library.load(name).predict(queries)), f"{name}.run")
    write_run(run_from_scores(queries, np.random.default_rng(0).random(queries.n_rows)), "noise.run")
    return queries


def values(queries: QuerySet, name: str, measure) -> np.ndarray:
    return evaluate(queries, library.load(name).predict(queries), [measure]).per_query[measure]


def test_table_shows_conventions_means_and_tests(kinrank, judged: QuerySet):
    done = kinrank("compare", "test", "single.run", "knn.run", "--measure", "ndcg(gain=linear)@5", "--measure", "AP")
    assert done.exit_code == 0, done.stderr
    assert done.stderr.startswith("warning: knn.run reaches 1.0000")
    lines = done.stdout.splitlines()
    for measure in (NDCG(gain="linear") @ 5, AP):
        single, knn = (values(judged, name, measure) for name in ("single", "knn"))
        test = compare_paired(knn, single)
        title = [line.strip() for line in lines].index(f"{measure!r}, 20 queries")
        _, baseline, other = (line.split() for line in lines[title + 1 : title + 4])
        assert baseline == ["single.run", f"{single.mean():.4f}"]
        assert other[:3] == ["knn.run", f"{knn.mean():.4f}", f"{test.mean_difference:+.4f}"]
        assert other[-3:] == [str(count) for count in (test.wins, test.ties, test.losses)]
    assert "p: paired t-test against single.run; Holm: corrected for these 2 tests" in done.stdout


def test_json_equals_the_values_of_the_library(kinrank, judged: QuerySet):
    measure = NDCG @ 10
    done = kinrank("compare", "test.txt", "single.run", "knn.run", "noise.run", "--json")
    record = json.loads(done.stdout)
    assert (record["queries"], record["documents"], record["baseline"]) == (20, 200, "single.run")
    means = {run["entrant"]: run["means"][repr(measure)] for run in record["entrants"]}
    assert means["single.run"] == pytest.approx(values(judged, "single", measure).mean(), abs=1e-12)
    test = compare_paired(values(judged, "knn", measure), values(judged, "single", measure))
    found, _ = tested = record["differences"]
    assert found["difference"] == pytest.approx(test.mean_difference)
    assert found["interval"] == pytest.approx(list(test.interval))
    assert (found["wins"], found["ties"], found["losses"]) == (test.wins, test.ties, test.losses)
    assert [each["p_holm"] for each in tested] == pytest.approx(holm([each["p"] for each in tested]).tolist())


def test_any_run_can_be_the_baseline(kinrank, judged: QuerySet):
    by_name = json.loads(kinrank("compare", "test", "knn.run", "--baseline", "noise.run", "--json").stdout)
    assert [run["entrant"] for run in by_name["entrants"]] == ["noise.run", "knn.run"]
    among = json.loads(kinrank("compare", "test", "knn.run", "noise.run", "--baseline", "noise.run", "--json").stdout)
    assert among == by_name


def test_single_run_is_not_tested(kinrank, judged: QuerySet):
    done = kinrank("compare", "test", "knn.run")
    assert done.exit_code == 0, done.stderr
    assert "1.0000" in done.stdout
    assert "p:" not in done.stdout


def test_missing_and_unknown_documents_are_counted_in_warnings(kinrank, judged: QuerySet):
    lines = Path("knn.run").read_text().splitlines()
    first_query = lines[0].split()[0]
    kept = [line for line in lines if line.split()[0] != first_query][1:]
    Path("part.run").write_text("\n".join([*kept, f"{first_query} Q0 stranger 1 9.0 x"]) + "\n")
    done = kinrank("compare", "test", "part.run", "--json")
    (run,) = json.loads(done.stdout)["entrants"]
    assert list(run["coverage"].values())[:3] == [11, 1, 1]
    assert (
        "11 of the 200 documents in the data are missing from the run, including all documents of 1 queries"
        in done.stderr
    )
    assert "part.run: 1 documents are not in the data; they are ignored" in done.stderr


def test_missing_documents_are_ranked_last(kinrank, workdir: Path):
    # The relevant document is missing and still ranks below the other one, which has a very low score.
    Path("two.txt").write_text("1 qid:1 1:0 #docid = a\n0 qid:1 1:0 #docid = b\n")
    Path("low.run").write_text("1 Q0 b 1 -1e300 x\n")
    record = json.loads(kinrank("compare", "two.txt", "low.run", "--measure", "RR", "--json").stdout)
    assert list(record["entrants"][0]["means"].values()) == [0.5]


def test_measure_that_skips_all_queries_has_no_mean(kinrank, workdir: Path):
    Path("two.txt").write_text("0 qid:1 1:0 #docid = a\n0 qid:1 1:0 #docid = b\n")
    Path("a.run").write_text("1 Q0 a 1 1 x\n1 Q0 b 2 0 x\n")
    done = kinrank("compare", "two.txt", "a.run", "--measure", "NDCG(no_relevant=skip)@10", "--json")
    assert list(json.loads(done.stdout)["entrants"][0]["means"].values()) == [None]


def test_a_model_folder_ranks_the_queries(kinrank, judged: QuerySet):
    done = kinrank("compare", "test", "knn.run", "./knn", "--json")
    by_run, by_model = (run["means"]["NDCG @ 10"] for run in json.loads(done.stdout)["entrants"])
    assert by_model == pytest.approx(by_run, abs=1e-12)


def test_training_queries_of_a_model_are_refused(kinrank, judged: QuerySet):
    done = kinrank("compare", "train.parquet", "./knn")
    assert done.exit_code == 2
    assert "are in this model's training data" in " ".join(done.stderr.split())
    assert "1.0000" not in done.stdout
