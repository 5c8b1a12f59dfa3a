from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kinrank.data.queryset import QuerySet
from kinrank.data.source import Source


def test_parts_are_written_in_the_format_of_their_names(kinrank, camps: QuerySet, workdir: Path) -> None:
    camps.save("camps")
    done = kinrank("split", "camps", "a.csv", "b.parquet", "c.txt")
    assert done.exit_code == 0, done.stderr
    parts = [Source(name).read() for name in ("a.csv", "b.parquet", "c.txt")]
    assert [len(part) for part in parts] == [42, 6, 12]
    assert sorted(np.concatenate([part.qid for part in parts])) == sorted(camps.qid)


def test_groups_stay_together_and_time_orders_the_parts(kinrank, camps: QuerySet, workdir: Path) -> None:
    camps.replace(query_columns={"movie": np.arange(60) // 6, "day": np.arange(60)[::-1]}).save("dated")
    assert kinrank("split", "dated", "a", "b", "--shares", "0.5,0.5", "--group", "movie").exit_code == 0
    first, second = (set(Source(name).read().query_columns["movie"].tolist()) for name in ("a", "b"))
    assert not first & second
    assert kinrank("split", "dated", "a", "b", "--time", "day").exit_code == 0
    assert Source("b").read().query_columns["day"].min() > Source("a").read().query_columns["day"].max()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "b", "--shares", "half"], "--shares must be numbers"),
        (["a", "b", "--shares", "1"], "one share for each of the 2 parts"),
        (["a", "b", "c", "d"], "--shares is needed for 4 parts"),
        (["a", "b.xlsx"], "unknown suffix"),
    ],
)
def test_wrong_parts_are_refused(kinrank, workdir: Path, words: list[str], message: str) -> None:
    done = kinrank("split", "test", *words)
    assert done.exit_code == 2
    assert message in done.stderr
