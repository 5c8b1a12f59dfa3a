from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kinrank as library
from kinrank.data.parquet import write_parquet
from kinrank.data.queryset import QuerySet
from kinrank.engines.targets import TARGETS, value_ranges
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.rankrls import RankRLS
from kinrank.memory.evidence import Evidence

THESE = {"ids": {"values": "{{doc_id}}"}}
CLAUSES = {
    "f1": {"bool": {"must": [THESE], "should": [{"match": {"title": "{{text}}"}}]}},
    "f2": {"match": {"plot": "about {{text}}"}},
}


@pytest.fixture
def queries(workdir: Path) -> QuerySet:
    """Queries with texts in queries.parquet, and the model signed/ with sign constraints on its weights."""
    X = np.random.default_rng(0).standard_normal((400, 2))
    world = QuerySet.from_arrays(X, X[:, 0] > X[:, 1], group=[10] * 40)
    some = world[20:].replace(
        doc_id=np.array([f"d{row}" for row in range(200)]),
        query_columns={"text": np.array([f"words {qid}" for qid in world[20:].qid])},
    )
    write_parquet(some, "queries.parquet")
    learner = RankRLS(nonnegative=True, lower_is_better=["f2"])
    library.KnnRanker(n_neighbors=5, learner=learner).fit(world[:20]).save("signed")
    Path("clauses.json").write_text(json.dumps(CLAUSES))
    return some


def test_table_shows_the_weights_of_every_query(kinrank, camps: QuerySet, workdir: Path):
    done = kinrank("explain", "--weights", "knn", "test")
    assert (done.exit_code, done.stderr) == (0, "")
    heading, *lines = done.stdout.splitlines()
    assert heading.split() == ["query", "f1", "f2"]
    assert [line.split()[0] for line in lines] == [str(qid) for qid in camps[40:].qid]
    shown = np.array([[float(cell) for cell in line.split()[1:]] for line in lines])
    np.testing.assert_allclose(shown, library.load("knn").weights(camps[40:]), rtol=1e-3)


def test_json_has_one_line_per_query(kinrank, camps: QuerySet, workdir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kinrank.cli.explain.QUERIES_AT_ONCE", 3)
    lines = [json.loads(line) for line in kinrank("explain", "knn", "test", "--json").stdout.splitlines()]
    assert [line["qid"] for line in lines] == camps[40:].qid.tolist()
    weights = [[line["weights"]["f1"], line["weights"]["f2"]] for line in lines]
    np.testing.assert_array_equal(weights, library.load("knn").weights(camps[40:]))


def test_weights_of_a_ranker_that_is_not_linear_have_a_fidelity(kinrank, camps: QuerySet, workdir: Path):
    library.KinRanker(5, trees=LambdaMART(n_trees=5, n_leaves=3, n_threads=1)).fit(camps[:40]).save("kin")
    expected = library.load("kin").weights_with_fidelity(camps[40:])
    lines = [json.loads(line) for line in kinrank("explain", "--weights", "kin", "test", "--json").stdout.splitlines()]
    np.testing.assert_array_equal([line["fidelity"] for line in lines], expected.fidelity)
    heading, *lines = kinrank("explain", "--weights", "kin", "test").stdout.splitlines()
    assert heading.split() == ["query", "f1", "f2", "fidelity"]
    assert lines[0].split()[-1] == f"{expected.fidelity[0]:.2f}"


def test_query_option_selects_one_query(kinrank, camps: QuerySet, workdir: Path):
    qid = camps[40:].qid[7].item()
    (line,) = kinrank("explain", "--weights", "knn", "test", "--query", qid, "--json").stdout.splitlines()
    assert json.loads(line)["qid"] == qid


def test_requests_contain_the_weights_and_the_text_of_each_query(kinrank, queries: QuerySet):
    options = ["--target", "opensearch-hybrid(size=7)", "--clauses", "clauses.json", "--inverted", "f2"]
    done = kinrank("explain", "--weights", "signed", "queries.parquet", *options)
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    target, weights = TARGETS.make("opensearch-hybrid(size=7)"), library.load("signed").weights(queries)
    for line, query, row in zip(lines, queries, weights.tolist(), strict=True):
        words = f"words {query.qid[0]}"
        assert query.doc_id is not None
        these = {"ids": {"values": query.doc_id.tolist()}}
        clauses = {
            "f1": {"bool": {"must": [these], "should": [{"match": {"title": words}}]}},
            "f2": {"match": {"plot": f"about {words}"}},
        }
        ranges = value_ranges(["f1", "f2"], query.X)
        expected = target.request({"f1": row[0], "f2": row[1]}, clauses, ranges=ranges, inverted=["f2"])
        assert line == {"qid": query.qid[0].item(), "request": expected}


def test_queries_without_a_request_are_counted_in_a_warning(kinrank, camps: QuerySet, workdir: Path):
    # Half of the queries prefer a low f1: with nonnegative weights all their weights are 0.
    library.KnnRanker(n_neighbors=5, learner=RankRLS(nonnegative=True)).fit(camps[:40]).save("signed")
    Path("clauses.json").write_text(json.dumps(CLAUSES).replace("{{text}}", "heat").replace("{{doc_id}}", "d1"))
    done = kinrank(
        "explain", "--weights", "signed", "test", "--target", "opensearch-hybrid", "--clauses", "clauses.json"
    )
    answered = (library.load("signed").weights(camps[40:]).max(axis=1) > 0).sum()
    assert 0 < answered < 20
    assert len(done.stdout.splitlines()) == answered
    assert f"warning: no request for {20 - answered} of 20 queries; first reason: OpenSearch 2.10 needs" in done.stderr


def test_request_of_one_query_is_printed_on_its_own(kinrank, queries: QuerySet):
    qid = queries.qid[0].item()
    Path("prefetches.json").write_text(json.dumps({"f1": {"query": "{{text}}"}, "f2": "votes"}))
    options = ["--target", "qdrant-formula", "--clauses", "prefetches.json", "--query", qid]
    done = kinrank("explain", "--weights", "signed", "queries.parquet", *options)
    request = json.loads(done.stdout)
    assert [term["mult"][1] for term in request["query"]["formula"]["sum"]] == ["$score[0]", "votes"]
    assert request["prefetch"] == [{"query": f"words {qid}"}]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--target", "sphinx"], "unknown target 'sphinx': choose one of 'opensearch-hybrid'"),
        (["--target", "qdrant-formula(color=1)"], "cannot read target"),
        (["--query", "nobody"], "queries.parquet: no query 'nobody' among 20 queries"),
        (["--target", "opensearch-hybrid", "--clauses", "bad.json"], "bad.json, line 1: expected JSON"),
        (["--target", "opensearch-hybrid", "--clauses", "list.json"], "expected an object with the clause of each"),
        (
            ["--target", "opensearch-hybrid", "--clauses", "column.json"],
            "unknown placeholder {{color}}; available: {{text}}",
        ),
        (["--target", "opensearch-hybrid", "--inverted", "f2"], "needs a sub-query for each feature"),
        (
            ["--target", "opensearch-hybrid", "--clauses", "clauses.json"],
            "does not support negative weights, and the weight of 'f2' is",
        ),
    ],
)
def test_wrong_input_is_an_error(kinrank, queries: QuerySet, words: list[str], problem: str):
    Path("bad.json").write_text("{")
    Path("list.json").write_text("[]")
    Path("column.json").write_text(json.dumps({"f1": "{{color}}", "f2": {}}))
    done = kinrank("explain", "--weights", "signed", "queries.parquet", *words)
    assert done.exit_code == 2
    assert problem in done.stderr


def test_tree_model_is_an_error(kinrank, camps: QuerySet, workdir: Path):
    library.SingleRanker("lambdamart").fit(camps[:40]).save("trees")
    done = kinrank("explain", "--weights", "trees", "test")
    assert done.exit_code == 2
    assert "SingleRanker has no linear weights" in done.stderr


def test_models_of_choices_add_boosts(kinrank, queries: QuerySet):
    ranked = queries[0].doc_id[np.argsort(library.load("signed").predict(queries[0]))]
    chosen, ignored = str(ranked[0]), str(ranked[-1])
    evidence = Evidence.from_cells([str(queries.query_columns["text"][0])] * 2, [chosen, ignored], [30, 30], [29, 0])
    library.KinRanker(
        evidence=evidence,
        encoder=None,
        memory=False,
        local=False,
        n_members=2,
        n_repeats=1,
        trees="lambdamart(n_trees=5)",
    ).fit(queries).save("choices")
    lines = kinrank("explain", "--weights", "choices", "queries.parquet", "--json").stdout.splitlines()
    first, second, *_ = map(json.loads, lines)
    assert first["boosts"].keys() == {chosen, ignored}
    assert first["boosts"][chosen] > 0 > first["boosts"][ignored]
    assert "boosts" not in second
    done = kinrank(
        "explain",
        "choices",
        "queries.parquet",
        "--target",
        "opensearch-hybrid",
        "--clauses",
        "clauses.json",
        "--inverted",
        "f2",
        "--query",
        str(queries.qid[0]),
    )
    assert "cannot boost single documents" in done.stderr
