from __future__ import annotations

import numpy as np
import pytest

import kinrank as library


def test_explain_prints_the_explanations_of_the_ranker(kinrank, workdir):
    queries = library.QuerySet.open("test")
    ranker = library.load("knn")
    done = kinrank("explain", "knn", "test", "--query", queries.qid[3], "--query", queries.qid[1])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "".join(f"{ranker.explain(queries[i : i + 1])[0]}\n" for i in (1, 3))
    assert kinrank("explain", "knn", "test").stdout.startswith(f"query {queries.qid[0]}")


def test_queries_are_selected_by_their_texts(kinrank, workdir):
    queries = library.QuerySet.open("test")
    texts = [f"Title {position}" for position in range(len(queries))]
    queries.replace(query_columns={"text": np.array(texts)}).save("named")
    done = kinrank("explain", "knn", "named", "--query", " title  3 ")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("*Title 3*")
    done = kinrank("explain", "knn", "named", "--query", "nobody's")
    assert done.exit_code == 2
    assert "no query \"nobody's\" among 20 queries; texts look like 'title 0', 'title 1'" in done.stderr


@pytest.mark.parametrize("options", [[], ["--weights"]])
def test_unknown_query_is_an_error(kinrank, workdir, options: list[str]):
    done = kinrank("explain", "knn", "test", *options, "--query", "40", "--query", "nowhere")
    assert done.exit_code == 2
    assert "test: no query 'nowhere' among 20 queries; ids look like '40', '41', '42', '43', '44'\n" in done.stderr


def test_ranker_without_explanations_is_an_error(kinrank, workdir):
    done = kinrank("explain", "single", "test")
    assert done.exit_code == 2
    assert "single: SingleRanker has no explanations" in done.stderr
