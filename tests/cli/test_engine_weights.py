from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import kinrank as library
from kinrank.data.parquet import write_parquet
from kinrank.data.queryset import QuerySet
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.rankrls import RankRLS
from kinrank.memory.evidence import Evidence


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


def test_unknown_query_is_an_error(kinrank, queries: QuerySet):
    done = kinrank("explain", "--weights", "signed", "queries.parquet", "--query", "nobody")
    assert done.exit_code == 2
    assert "queries.parquet: no query 'nobody' among 20 queries" in done.stderr


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
        trees="lambdamart(n_trees=5)",
        settings={"n_members": 2, "n_repeats": 1},
    ).fit(queries).save("choices")
    lines = kinrank("explain", "--weights", "choices", "queries.parquet", "--json").stdout.splitlines()
    first, second, *_ = map(json.loads, lines)
    assert first["boosts"].keys() == {chosen, ignored}
    assert first["boosts"][chosen] > 0 > first["boosts"][ignored]
    assert "boosts" not in second
