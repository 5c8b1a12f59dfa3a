from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from kinrank.data.parquet import write_parquet
from kinrank.data.queryset import QuerySet
from kinrank.datasets import make_intents
from kinrank.study.headroom import headroom


def test_headroom_prints_means_differences_and_advice(kinrank, camps: QuerySet, workdir: Path):
    camps.save("camps")
    done = kinrank("headroom", "camps", "--linear", "--details")
    assert done.exit_code == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines() if line.strip()]
    found = headroom(camps, trees=False)
    assert " ".join(lines[0]) == found.answer.line
    assert " ".join(lines[1]) == "kinrank train camps --ranker knn --model model"
    assert " ".join(lines[2]) == "NDCG @ 10, 60 queries, 5 folds by query"
    for line, (name, mean, _) in zip(lines[3:5], found.answer.steps, strict=True):
        assert " ".join(line).startswith(f"{name} {mean:.4f}")
    short = kinrank("headroom", "camps", "--linear").stdout
    assert done.stdout.startswith(short.removesuffix("Trees were not measured.\n"))
    for line, (name, mean) in zip(lines[5:8], found.means.items(), strict=True):
        assert " ".join(line).startswith(f"{name} {mean:.4f}")
    assert lines[7][-3:] == ["unreachable", "upper", "bound"]
    paired = found.answer.gain.paired
    assert f"{paired.wins} gain, {paired.ties} are unchanged, 0 lose" in done.stdout
    assert "unjudged unknown: DATA holds judged documents only" in " ".join(done.stdout.split())
    assert done.stdout.rstrip().endswith(found.answer.text)


def test_headroom_with_settings_groups_and_a_test_set_prints_json(kinrank, workdir: Path):
    queries = make_intents(300, 100, n_docs=15, n_features=8, spread=0.0)
    queries = queries.replace(doc_id=np.arange(queries.n_rows), query_columns={"topic": np.arange(400) // 4})
    write_parquet(queries[:300], "train_intents.parquet")
    write_parquet(queries[300:], "test_intents.parquet")
    args = [
        "headroom",
        "train_intents.parquet",
        "--test",
        "test_intents.parquet",
        "--group",
        "topic",
        "--json",
        "--linear",
    ]
    done = kinrank(*args, "--measure", "AP", "--set", "reference=reference")
    assert done.exit_code == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["measure"], record["queries"], record["folds"]) == ("AP", 100, 1)
    assert record["unjudged_top_10"] is None
    assert record["answer"]["verdict"] in ("none", "unclear")
    assert list(record["means"]) == ["one linear model", "a linear model per query", "oracle"]


def test_seen_queries_are_an_error_and_near_duplicates_a_warning(kinrank, camps: QuerySet, workdir: Path):
    camps[:40].save("train_camps")
    camps[35:].save("test_camps")
    done = kinrank("headroom", "train_camps", "--test", "test_camps")
    assert done.exit_code == 2
    assert "5 of 25 test queries were seen in training" in done.stderr
    dropped = kinrank("headroom", "train_camps", "--test", "test_camps", "--leaks", "drop", "--linear")
    assert "20 queries, separate test set" in dropped.stdout
    X = camps.X.copy()
    X[400:408] = X[:8]
    camps[40:].replace(X=X[400:]).save("near_camps")
    near = kinrank("headroom", "train_camps", "--test", "near_camps", "--linear", "--details")
    assert near.exit_code == 0, near.stderr
    assert "warning: 1 of 20 test queries have a near-duplicate in training" in near.stderr
    assert "on the 19 queries without near-duplicates in training" in near.stdout
