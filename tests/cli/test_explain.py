from __future__ import annotations

import kinrank as library


def test_queries_are_explained_as_the_ranker_does(kinrank, workdir):
    queries = library.QuerySet.open("test")
    ranker = library.load("knn")
    done = kinrank("explain", "knn", "test", "--query", queries.qid[3], "--query", queries.qid[1])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == "".join(f"{ranker.explain(queries[i : i + 1])[0]}\n" for i in (1, 3))
    assert kinrank("explain", "knn", "test").stdout.startswith(f"query {queries.qid[0]}")


def test_what_cannot_be_explained_is_refused(kinrank, workdir):
    done = kinrank("explain", "knn", "test", "--query", "nowhere")
    assert done.exit_code == 2
    assert "test: has no query 'nowhere'; its queries are like '" in done.stderr
    done = kinrank("explain", "single", "test")
    assert done.exit_code == 2
    assert "single: a SingleRanker has no explanations" in done.stderr
