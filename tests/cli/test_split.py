from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank.data.queryset import QuerySet
from kinrank.data.source import Source
from kinrank.datasets import make_two_camps
from kinrank.study._folds import has_near
from tests.study.worlds import in_families


def test_parts_are_written_in_the_format_of_their_names(kinrank, camps: QuerySet, workdir: Path) -> None:
    camps.save("camps")
    done = kinrank("data", "split", "camps", "a.csv", "b.parquet", "c.txt")
    assert done.exit_code == 0, done.stderr
    parts = [Source(name).read() for name in ("a.csv", "b.parquet", "c.txt")]
    assert [len(part) for part in parts] == [42, 6, 12]
    assert sorted(np.concatenate([part.qid for part in parts])) == sorted(camps.qid)


def test_groups_stay_together_and_time_orders_the_parts(kinrank, camps: QuerySet, workdir: Path) -> None:
    camps.replace(query_columns={"movie": np.arange(60) // 6, "day": np.arange(60)[::-1]}).save("dated")
    assert kinrank("data", "split", "dated", "a", "b", "--shares", "0.5,0.5", "--group", "movie").exit_code == 0
    first, second = (set(Source(name).read().query_columns["movie"].tolist()) for name in ("a", "b"))
    assert not first & second
    assert kinrank("data", "split", "dated", "a", "b", "--time", "day").exit_code == 0
    assert Source("b").read().query_columns["day"].min() > Source("a").read().query_columns["day"].max()


def test_families_stay_together(kinrank, workdir: Path) -> None:
    in_families(np.where(np.arange(100) < 60, 0, np.arange(100) // 2)).save("alike")
    done = kinrank("data", "split", "alike", "a", "b", "--shares", "0.5,0.5", "--families")
    assert done.exit_code == 0, done.stderr
    assert "alike: 100 queries are of 21 families of similar texts (similarity above 0.6)" in done.stderr
    assert "alike: one group has 60 of 100 queries, more than a part of 50" in done.stderr
    parts = [Source(name).read() for name in ("a", "b")]
    assert [len(part) for part in parts] == [60, 40]
    assert not has_near(*parts).any()
    assert set(parts[0].query_columns) == {"text", "shop"}
    done = kinrank("data", "split", "alike", "a", "b", "--shares", "0.5,0.5")
    assert [len(Source(name).read()) for name in ("a", "b")] == [50, 50]
    assert "families" not in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b", "--shares", "half"], "--shares must be numbers"),
        (["a", "b", "--shares", "1"], "one share for each of the 2 parts"),
        (["a", "b", "c", "d"], "--shares is needed for 4 parts"),
        (["a", "b.xlsx"], "unknown suffix"),
        (["a", "b", "--families"], "families need the texts of queries"),
        (["a", "b", "--families", "--time", "day"], "--families and --time cannot be combined"),
    ],
)
def test_wrong_parts_are_refused(kinrank, workdir: Path, words: list[str], message: str) -> None:
    done = kinrank("data", "split", "test", *words)
    assert done.exit_code == 2
    assert message in done.stderr


def test_copies_of_a_query_stay_together_and_are_left_out_of_later_parts(kinrank, workdir: Path) -> None:
    queries = make_two_camps(n_queries=40, n_docs=4)
    texts = [f"text {number % 30}" for number in range(40)]
    queries.replace(query_columns={"text": np.array(texts), "date": np.arange(40)}).save("copied")
    for words, said in (([], "moved there"), (["--time", "date"], "left out")):
        done = kinrank("data", "split", "copied", "a", "b", "--shares", "0.6,0.4", *words)
        assert done.exit_code == 0, done.stderr
        assert f"queries have the text or the feature rows of one in an earlier part: {said}" in done.stderr
        first, second = Source("a").read(), Source("b").read()
        assert not set(first.query_columns["text"]) & set(second.query_columns["text"])
        assert len(first) + len(second) == (40 if said == "moved there" else 30)
        tested = kinrank("compare", "b", "single()", "knn()", "--train", "a")
        assert tested.exit_code == 0, tested.stderr


def test_a_missing_time_is_called_time(kinrank, workdir: Path) -> None:
    done = kinrank("data", "split", "test", "a", "b", "--time", "date")
    assert done.exit_code == 2
    assert "time 'date' is not a query column" in done.stderr
    assert "kinrank clicks writes the day on which a query was first asked" in done.stderr
