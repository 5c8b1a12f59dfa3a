from __future__ import annotations

from pathlib import Path

import numpy as np

from kinrank import KinRanker
from kinrank.data.queryset import QuerySet
from kinrank.describe import Describer
from kinrank.learn.lambdamart import LambdaMART


def test_describe_prints_the_numbers_of_the_describer(kinrank, camps: QuerySet, workdir: Path):
    done = kinrank("data", "describe", "train.parquet", "--set", "blocks=summaries")
    assert done.exit_code == 0, done.stderr
    header, *lines = (line.split("\t") for line in done.stdout.splitlines())
    describer = Describer("summaries").fit(camps[:40])
    assert header == ["qid", *describer.names]
    assert [line[0] for line in lines] == [str(qid) for qid in camps[:40].qid.tolist()]
    numbers = np.array([line[1:] for line in lines], dtype=float)
    np.testing.assert_allclose(numbers, describer.transform(camps[:40]), atol=1e-5)


def test_nearest_queries_belong_to_the_same_camp(kinrank, camps: QuerySet, workdir: Path):
    done = kinrank("data", "describe", "train.parquet", "--set", "blocks=mean", "--nearest", 3)
    assert done.exit_code == 0, done.stderr
    camp = dict(zip(map(str, camps.qid.tolist()), camps.X[camps.offsets[:-1], 1].tolist(), strict=True))
    for line in done.stdout.splitlines():
        name, *others = (part.split(" ")[0] for part in line.split("\t"))
        assert len(others) == 3
        assert name not in others
        assert {camp[other] for other in others} == {camp[name]}


def test_nearest_queries_are_the_neighbors_of_kin(kinrank, camps: QuerySet, workdir: Path):
    texts = np.array([f"{'red' if qid % 3 else 'blue'} car {qid % 7}" for qid in range(40)])
    queries = camps[:40].replace(query_columns={"text": texts})
    queries.save("texts")
    ranker = KinRanker(5, trees=LambdaMART(n_trees=5, n_leaves=3, n_threads=1)).fit(queries)
    lines = kinrank("data", "describe", "texts", "--nearest", 3).stdout.splitlines()
    assert len(lines) == 40
    for line, name, why in zip(lines, texts, ranker.explain(queries), strict=True):
        positions = [queries.qid.tolist().index(qid) for qid in why.neighbors if qid != why.qid]
        assert [part.rpartition(" ")[0] for part in line.split("\t")[1:]] == texts[positions[:3]].tolist()
        assert line.startswith(name)


def test_unknown_setting_is_an_error(kinrank, workdir: Path):
    done = kinrank("data", "describe", "train.parquet", "--set", "block=mean")
    assert done.exit_code == 2
    assert "unknown parameter 'block'" in done.stderr
