"""The folder of a log is counted partition by partition, and the cells depend on what is in its files alone."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kinrank import QuerySet
from kinrank.clicks import read_clicks
from kinrank.clicks.choices import write_evidence
from kinrank.clicks.counting import FirstPass
from kinrank.clicks.examination import Examination
from kinrank.clicks.log import partitions
from kinrank.clicks.partitions import Counted, count_partitions, write_counted
from kinrank.clicks.read import LogOptions, open_clicks
from kinrank.data.hashes import hash_arrow
from kinrank.errors import DataError
from kinrank.memory.evidence import Evidence
from kinrank.parallel import Executor, Processes, Serial

DAY = date(2026, 10, 1)
FIRST_DAY = DAY.toordinal() - date(1970, 1, 1).toordinal()
SLOPE = 1 / np.arange(1.0, 6.0) ** 0.9
CURVE = Examination("swaps", np.arange(1, 6), SLOPE, np.array([0.0, 0.01, 0.02, 0.01, 0.0]), SLOPE, SLOPE, "")
LISTS = {"list": "l1", "query": "alien", "client": "ann", "documents": ["d1", "d2"], "day": 0}


def simulated(n_lists: int = 300, seed: int = 0) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return lists and clicks of three days; half of the clicks are on the next day."""
    rng = np.random.default_rng(seed)
    lists, clicks = [], []
    for number in range(n_lists):
        day, query = int(rng.integers(3)), int(rng.integers(12))
        documents = [f"d{query}-{place}" for place in rng.permutation(7)[:5]]
        client = None if rng.random() < 0.1 else f"client {rng.integers(20)}"
        query = rng.choice([f"query {query}", f" Query  {query}", f"Straße {query}"])
        lists.append({"list": f"l{number}", "query": query, "client": client, "documents": documents, "day": day})
        clicks += [
            {"list": f"l{number}", "document": documents[place], "day": day + int(rng.integers(2))}
            for place in np.flatnonzero(rng.random(5) < 0.2)
        ]
    return lists, clicks


def write(
    log: Path, lists: Sequence[dict[str, Any]], clicks: Sequence[dict[str, Any]], name: str = "a", buckets: int = 0
) -> Path:
    """Write rows to the folder of a log; clicks have no buckets."""
    shares: dict[Path, list[dict[str, Any]]] = {}
    for kind, rows in (("impressions", lists), ("clicks", clicks)):
        for row in rows:
            day = date.fromordinal(DAY.toordinal() + row["day"])
            folder = log / kind / f"day={day}"
            if buckets and kind == "impressions":
                folder /= f"bucket={hash(' '.join(row['query'].lower().split())) % buckets}"
            shares.setdefault(folder, []).append({key: value for key, value in row.items() if key != "day"})
    for folder, rows in shares.items():
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    return log


def count(
    log: Path,
    name: str = "evidence",
    *,
    min_clients: int = 1,
    executor: Executor | None = None,
    examination: Examination = CURVE,
    excluded: Sequence[str] = (),
) -> tuple[Evidence, Counted]:
    first = FirstPass.of(examination, hash_arrow(pa.array(list(excluded), pa.string()))[0])
    cells, options = log.parent / f"{name}.cells", LogOptions(min_clients=min_clients, threads=1)
    done = count_partitions(log, cells, first, options, executor=executor)
    return write_counted(log, cells, log.parent / name, first, examination, options), done


def assert_same(found: Evidence, expected: Evidence) -> None:
    """Assert that two folders are equal to the last bit."""
    assert found.n_cells > 0
    for name, values in expected.get_state().items():
        np.testing.assert_array_equal(found.get_state()[name], values)


def totals(evidence: Evidence, query: str, *documents: str) -> tuple[list[float], list[float]]:
    n = len(documents)
    asked = QuerySet.from_arrays(np.zeros((n, 1)), qid=[1] * n, doc_id=documents, query_columns={"text": [query]})
    looks, choices = evidence.totals(asked)
    return looks.tolist(), choices.tolist()


@pytest.mark.parametrize("executor", [Serial(), Processes(2)], ids=["serial", "processes"])
def test_neither_files_nor_buckets_nor_executors_change_a_bit(executor: Executor, tmp_path: Path):
    lists, clicks = simulated()
    whole, done = count(write(tmp_path / "log", lists, clicks), "whole", min_clients=2)
    assert done == Counted(3, 3)
    cut = tmp_path / "cut"
    for number in range(4):
        write(cut, lists[number::4], clicks[number::4], f"{number}", buckets=3)
    parts, done = count(cut, "parts", min_clients=2, executor=executor)
    assert done == Counted(9, 9)
    assert_same(parts, whole)


@pytest.mark.parametrize("model", ["swaps", "cascade"])
def test_a_log_by_day_is_counted_as_its_rows_are(model: str, tmp_path: Path):
    log = write(tmp_path / "log", *simulated())
    curve = Examination(model, CURVE.ranks, CURVE.slope, CURVE.offset, CURVE.low, CURVE.high, "")
    with open_clicks([log], LogOptions(min_clients=1)) as opened:
        rows = write_evidence(opened, curve, tmp_path / "rows")
    found = count(log, examination=curve)[0].get_state()
    for name in ("query", "offsets", "document", "day", "looks", "choices"):
        np.testing.assert_array_equal(found[name], rows.get_state()[name])


def test_only_what_changed_is_counted_and_twice_is_harmless(tmp_path: Path):
    lists, clicks = simulated()
    log = write(tmp_path / "log", lists[:200], clicks[:90])
    count(log)
    assert count(log)[1] == Counted(3, 0)
    day = [row for row in lists[200:] if row["day"] == 2]
    write(log, day, [], "b")
    assert count(log)[1] == Counted(3, 1)
    write(log, [row for row in lists[200:] if row["day"] < 2], clicks[90:], "c")
    write(log, lists[50:], clicks[40:], "again")
    added, done = count(log)
    assert done == Counted(3, 3)
    assert_same(added, count(write(tmp_path / "log2", lists, clicks), "fresh")[0])
    for file in (log / "impressions" / f"day={DAY}").iterdir():
        file.unlink()
    assert count(log)[1] == Counted(2, 0)


def test_jobs_at_once_write_what_one_writes(tmp_path: Path):
    log = write(tmp_path / "log", *simulated(), buckets=4)
    expected = count(log, "one")[0]
    with ThreadPoolExecutor(2) as pool:
        for done, _ in pool.map(lambda _: count(log), range(2)):
            assert_same(done, expected)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["evidence", "evidence.cells", "log", "one", "one.cells"]


def test_a_click_after_midnight_counts_and_one_much_later_does_not(tmp_path: Path):
    for later, choices in ((0, 1), (1, 1), (2, 0)):
        clicks = [{"list": "l1", "document": "d1", "day": later}]
        found, _ = count(write(tmp_path / f"log{later}", [LISTS], clicks), f"evidence{later}")
        assert totals(found, "alien", "d1") == ([1.0], [choices])


def test_repeated_rows_and_documents_count_once(tmp_path: Path):
    click = {"list": "l1", "document": "d2", "day": 0}
    twice = {**LISTS, "documents": ["d1", "d2", "d1"]}
    log = write(tmp_path / "log", [twice, twice], [click, {**click, "day": 1}])
    write(log, [twice], [click], "b")
    assert totals(count(log)[0], "alien", "d1", "d2") == ([1.0, pytest.approx(SLOPE[1])], [0.0, pytest.approx(0.99)])


def test_actions_of_value_and_excluded_clients(tmp_path: Path):
    lists = [{**LISTS, "list": f"l{client}", "client": client} for client in ("ann", "bot")]
    clicks = [{"list": each["list"], "document": "d1", "value": 0.4, "day": 0} for each in lists]
    found, _ = count(write(tmp_path / "log", lists, clicks), excluded=["bot"])
    assert totals(found, "alien", "d1") == ([1.0], [pytest.approx(0.4)])


def test_people_are_counted_over_the_days_of_a_log(tmp_path: Path):
    lists = [
        {**LISTS, "list": f"l{number}", "client": name, "day": number} for number, name in enumerate(("ann", "bob"))
    ]
    alone = {**LISTS, "list": "l3", "query": "heat", "day": 1}
    clicks = [{"list": "l0", "document": "d1", "day": 0}, {"list": "l3", "document": "d1", "day": 1}]
    clicks += [{"list": each["list"], "document": "d2", "day": each["day"]} for each in lists]
    found, _ = count(write(tmp_path / "log", [*lists, alone], clicks), min_clients=2)
    assert found.n_queries == 1
    state = found.get_state()
    of = {document: hash_arrow(pa.array([document]))[0][0] for document in ("d1", "d2")}
    few = dict(zip(state["document"].tolist(), state["few"].tolist(), strict=True))
    assert few == {of["d1"]: True, of["d2"]: False}
    assert count(write(tmp_path / "log2", lists, clicks), "three", min_clients=3)[0].n_cells == 0


def test_a_person_who_is_left_out_of_the_files_is_forgotten(tmp_path: Path):
    lists, clicks = simulated()
    log = write(tmp_path / "log", lists, clicks)
    count(log, min_clients=2)
    rest = [row for row in lists if row["client"] != "client 3"]
    write(log, rest, clicks)
    assert_same(count(log, min_clients=2)[0], count(write(tmp_path / "log2", rest, clicks), "rest", min_clients=2)[0])


def test_judgments_come_from_the_folder_of_a_log(tmp_path: Path):
    lists, clicks = simulated()
    rows, chosen = [], {(click["list"], click["document"]) for click in clicks}
    for row in lists:
        for rank, document in enumerate(row["documents"], start=1):
            clicked = (row["list"], document) in chosen
            rows.append({"query": row["query"], "session": row["list"], "document": document, "rank": rank})
            rows[-1] |= {"clicked": clicked, "time": (FIRST_DAY + row["day"]) * 86_400, "client": row["client"]}
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    expected, found = read_clicks([tmp_path / "rows.parquet"]), read_clicks([write(tmp_path / "log", lists, clicks)])
    assert found.query.to_pylist() == expected.query.to_pylist()
    assert found.document.to_pylist() == expected.document.to_pylist()
    for name in ("rank", "impressions", "clicks"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_folders_that_cannot_be_counted_are_named(tmp_path: Path):
    with pytest.raises(DataError, match="has no files impressions/day=YYYY-MM-DD"):
        count(tmp_path / "log")
    log = write(tmp_path / "log", [LISTS], [], buckets=1)
    write(log, [LISTS], [])
    with pytest.raises(DataError, match="has files next to buckets"):
        partitions(log)
    (tmp_path / "other" / "impressions" / "day=yesterday").mkdir(parents=True)
    with pytest.raises(DataError, match="name the folder as in day=2026-10-01"):
        partitions(tmp_path / "other")


def test_logs_and_files_are_not_mixed_in_one_folder_of_evidence(tmp_path: Path):
    log = write(tmp_path / "log", *simulated())
    count(log)
    with open_clicks([log]) as opened:
        with pytest.raises(DataError, match="is counted from the folder of a log"):
            write_evidence(opened, CURVE, tmp_path / "evidence")
        write_evidence(opened, CURVE, tmp_path / "files")
    with pytest.raises(DataError, match="has logs that were added one by one"):
        count(log, "files")
