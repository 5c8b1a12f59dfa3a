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
    done = kinrank("evaluate", "test", "single.run", "knn.run", "--measure", "ndcg(gain=linear)@5", "--measure", "AP")
    assert done.exit_code == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    for measure in (NDCG(gain="linear") @ 5, AP):
        single, knn = (values(judged, name, measure) for name in ("single", "knn"))
        test = compare_paired(knn, single)
        title = [line.strip() for line in lines].index(f"{measure!r}, 20 queries")
        _, baseline, other = (line.split() for line in lines[title + 1 : title + 4])
        assert baseline == ["single.run", f"{single.mean():.4f}"]
        assert other[:3] == ["knn.run", f"{knn.mean():.4f}", f"{test.mean_difference:+.4f}"]
        assert other[-3:] == [str(count) for count in (test.wins, test.ties, test.losses)]
    assert "paired t-test against single.run, Holm-corrected for 2 tests" in done.stdout


def test_json_equals_the_values_of_the_library(kinrank, judged: QuerySet):
    measure = NDCG @ 10
    done = kinrank("evaluate", "test.txt", "single.run", "knn.run", "noise.run", "--json")
    record = json.loads(done.stdout)
    assert (record["queries"], record["documents"], record["baseline"]) == (20, 200, "single.run")
    single, knn, noise = (run["measures"][0] for run in record["runs"])
    assert single["measure"] == repr(measure)
    assert single["mean"] == pytest.approx(values(judged, "single", measure).mean(), abs=1e-12)
    assert single["against_baseline"] is None
    test = compare_paired(values(judged, "knn", measure), values(judged, "single", measure))
    found = knn["against_baseline"]
    assert found["difference"] == pytest.approx(test.mean_difference)
    assert found["interval"] == pytest.approx(list(test.interval))
    assert (found["wins"], found["ties"], found["losses"]) == (test.wins, test.ties, test.losses)
    tested = [run["against_baseline"] for run in (knn, noise)]
    assert [each["p_holm"] for each in tested] == pytest.approx(holm([each["p"] for each in tested]).tolist())


def test_any_run_can_be_the_baseline(kinrank, judged: QuerySet):
    by_name = json.loads(kinrank("evaluate", "test", "knn.run", "--baseline", "noise.run", "--json").stdout)
    assert [run["run"] for run in by_name["runs"]] == ["noise.run", "knn.run"]
    among = json.loads(kinrank("evaluate", "test", "knn.run", "noise.run", "--baseline", "noise.run", "--json").stdout)
    assert among == by_name


def test_single_run_is_not_tested(kinrank, judged: QuerySet):
    done = kinrank("evaluate", "test", "knn.run")
    assert done.exit_code == 0, done.stderr
    assert "1.0000" in done.stdout
    assert "p:" not in done.stdout


def test_missing_and_unknown_documents_are_counted_in_warnings(kinrank, judged: QuerySet):
    lines = Path("knn.run").read_text().splitlines()
    first_query = lines[0].split()[0]
    kept = [line for line in lines if line.split()[0] != first_query][1:]
    Path("part.run").write_text("\n".join([*kept, f"{first_query} Q0 stranger 1 9.0 x"]) + "\n")
    done = kinrank("evaluate", "test", "part.run", "--json")
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["absent_documents"], run["absent_queries"], run["unknown_documents"]) == (11, 1, 1)
    assert (
        "11 of the 200 documents in the data are missing from the run, including all documents of 1 queries"
        in done.stderr
    )
    assert "part.run: 1 documents are not in the data; they are ignored" in done.stderr


def test_missing_documents_are_ranked_last(kinrank, workdir: Path):
    # The relevant document is missing and still ranks below the other one, which has a very low score.
    Path("two.txt").write_text("1 qid:1 1:0 #docid = a\n0 qid:1 1:0 #docid = b\n")
    Path("low.run").write_text("1 Q0 b 1 -1e300 x\n")
    record = json.loads(kinrank("evaluate", "two.txt", "low.run", "--measure", "RR", "--json").stdout)
    assert record["runs"][0]["measures"][0]["mean"] == 0.5


def test_measure_that_skips_all_queries_has_no_mean(kinrank, workdir: Path):
    Path("two.txt").write_text("0 qid:1 1:0 #docid = a\n0 qid:1 1:0 #docid = b\n")
    Path("a.run").write_text("1 Q0 a 1 1 x\n1 Q0 b 2 0 x\n")
    done = kinrank("evaluate", "two.txt", "a.run", "--measure", "NDCG(no_relevant=skip)@10", "--json")
    assert json.loads(done.stdout)["runs"][0]["measures"][0]["mean"] is None


def test_a_model_folder_ranks_the_queries(kinrank, judged: QuerySet):
    done = kinrank("evaluate", "test", "knn.run", "./knn", "--json")
    by_run, by_model = (run["measures"][0]["mean"] for run in json.loads(done.stdout)["runs"])
    assert by_model == pytest.approx(by_run, abs=1e-12)


def test_a_ranker_that_is_not_fitted_is_sent_to_compare(kinrank, judged: QuerySet):
    done = kinrank("evaluate", "test", "atvt")
    assert done.exit_code == 2
    assert "kinrank compare" in done.stderr
