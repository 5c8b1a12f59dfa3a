from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinrank import KnnRanker, SingleRanker, load
from kinrank.data.parquet import write_parquet
from kinrank.study.hybrid import BEST, PER_QUERY
from tests.study.hybrid_searches import two_kinds

ARGS = ("hybrid", "searches.parquet", "--normalization", "min_max", "--folds", "2")
CLAUSES = {"bm25": {"match": {"title": "{{text}}"}}, "vector": {"neural": {"embedding": {"query_text": "{{text}}"}}}}


@pytest.fixture
def searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_parquet(two_kinds(60), "searches.parquet")
    write_parquet(two_kinds(60, noise=True), "noise.parquet")
    return tmp_path


def test_prints_every_way_to_weight_the_scores_and_a_verdict(kinrank, searches: Path):
    done = kinrank(*ARGS, "--group", "topic")
    assert done.exit_code == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "NDCG @ 10, 60 queries, 2 folds by topic"
    assert lines[2].startswith(BEST)
    assert any(line.startswith(PER_QUERY["text"]) for line in lines)
    assert any(line.startswith("oracle") for line in lines)
    verdict = " ".join(lines[-4:])
    assert "weighting per query, from the text, gains +0." in verdict
    assert "Over one set of weights by the same learner the gain is +0." in verdict


def test_prints_json(kinrank, searches: Path):
    done = kinrank(*ARGS, "--json", "--score", "vector", "--score", "bm25")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["baseline"] == BEST
    assert [each["entrant"] for each in record["entrants"]][1:3] == ["vector", "bm25"]
    assert len(record["best"]) == len(record["chosen"]["text"]) == 2
    assert record["oracle"] == pytest.approx(1.0)
    assert record["gain_over_learned"]["text"]["difference"] > 0
    assert (record["best_alone"], record["one_search_is_enough"]) in {("vector", False), ("bm25", False)}


def test_model_gives_weights_and_requests_from_texts_alone(kinrank, searches: Path):
    done = kinrank(*ARGS, "--model", "model")
    assert done.exit_code == 0, done.stderr
    assert "model: weights per query, from the text, for min_max scores" in done.stderr
    assert isinstance(load("model"), KnnRanker)
    texts = pa.table({"qid": [1, 2], "text": ["part number 123", "how do I 456"]})
    pq.write_table(texts, "texts.parquet")
    Path("clauses.json").write_text(json.dumps(CLAUSES))
    done = kinrank("explain", "model", "texts.parquet", "--target", "opensearch-hybrid", "--clauses", "clauses.json")
    assert done.exit_code == 0, done.stderr
    lexical, semantic = (json.loads(line)["request"] for line in done.stdout.splitlines())
    shares = [
        each["search_pipeline"]["phase_results_processors"][0]["normalization-processor"]["combination"]["parameters"]
        for each in (lexical, semantic)
    ]
    assert shares[0]["weights"][0] > 0.5 > shares[1]["weights"][0]
    assert sum(shares[0]["weights"]) == pytest.approx(1.0)
    assert lexical["query"]["hybrid"]["queries"][0] == {"match": {"title": "part number 123"}}


def test_model_with_other_normalization_than_the_engine_is_an_error(kinrank, searches: Path):
    assert kinrank(*ARGS, "--model", "model").exit_code == 0
    Path("clauses.json").write_text(json.dumps(CLAUSES))
    args = ("explain", "model", "searches.parquet", "--clauses", "clauses.json", "--target")
    done = kinrank(*args, "elasticsearch-linear")
    assert done.exit_code == 2
    assert "the weights are for min_max scores, and Elasticsearch 8.18 adds raw scores" in " ".join(done.stderr.split())
    assert kinrank(*args, "elasticsearch-rrf").exit_code == 0


def test_without_a_gain_the_same_weights_are_kept_for_all(kinrank, searches: Path):
    done = kinrank("hybrid", "noise.parquet", "--folds", "2", "--model", "model", "--from", "candidates")
    assert done.exit_code == 0, done.stderr
    assert "weighting per query, from text and candidates, is " in done.stdout
    assert "model: the same weights for every query" in done.stderr
    kept = load("model")
    assert isinstance(kept, SingleRanker)
    assert kept.weights(two_kinds(2)).min() >= 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--score", "bm25"], "two or more scores, got bm25"),
        (["--score", "sparse"], "no feature 'sparse'; features: bm25, vector"),
        (["--from", "text"], "--from text needs query texts: add a column named text"),
        (["--model", "searches.parquet"], "searches.parquet"),
    ],
)
def test_wrong_input_is_an_error(kinrank, searches: Path, words: list[str], problem: str):
    if "--from" in words:
        write_parquet(two_kinds(60).replace(query_columns={}), "searches.parquet")
    done = kinrank(*ARGS, *words)
    assert done.exit_code == 2
    assert problem in " ".join(done.stderr.split())
