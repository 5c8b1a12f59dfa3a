from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import duckdb  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from kinrank import QuerySet
from kinrank.cli.app import app
from kinrank.clicks import choices
from kinrank.clicks._counts import Funnel
from kinrank.clicks.choices import add_logs, evidence_before_logs, stored_examination, write_evidence
from kinrank.clicks.examination import Examination, estimate_examination
from kinrank.clicks.read import LogOptions, open_clicks
from kinrank.data.hashes import hash_texts, query_keys
from kinrank.datasets import make_two_camps, simulate_clicks
from kinrank.errors import DataError
from kinrank.folder import locked
from kinrank.memory._votes import RankCurve, ShownList, count_votes
from kinrank.memory.evidence import Evidence
from kinrank.parallel import Processes, Serial
from tests.processes import wait_until


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    camps = make_two_camps(n_queries=60, n_docs=8)
    return camps.replace(doc_id=camps.doc_id.astype(str), query_columns={"text": camps.qid.astype(str)})


@pytest.fixture(scope="module")
def log(queries: QuerySet) -> pa.Table:
    return simulate_clicks(queries, queries.X[:, 0], n_lists=20, tail=0.5, depth=4)


def write(table: pa.Table, folder: Path, name: str = "log", model: str = "swaps", into: str = "evidence") -> Evidence:
    file = folder / f"{name}.parquet"
    pq.write_table(table, file)
    with open_clicks([file]) as opened:
        examination = estimate_examination(opened.counts(cascade=model == "cascade"), model)
        return write_evidence(opened, examination, folder / into, [file])


def expected(table: pa.Table, queries: QuerySet, slope: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Sum looks and choices row by row."""
    of = {
        key: row
        for row, key in enumerate(zip(queries.qid[queries.query_of_row].astype(str), queries.doc_id, strict=True))
    }
    total = np.zeros((2, queries.n_rows))
    for impression in table.to_pylist():
        row, rank = of[impression["query"], impression["document"]], impression["rank"]
        total[:, row] += slope[rank], impression["clicked"] - offset[rank]
    return total


@pytest.mark.parametrize("model", ["swaps", "trust", "none"])
def test_looks_and_choices_are_sums_over_the_log(model: str, log: pa.Table, queries: QuerySet, tmp_path: Path):
    evidence = write(log, tmp_path, model=model)
    slope, offset = (np.r_[0, values] for values in evidence_model(evidence))
    np.testing.assert_allclose(
        tuple(evidence.totals(queries)), expected(log, queries, slope, offset), rtol=1e-5, atol=1e-4
    )
    assert evidence.days == (20_717, 20_745)


def evidence_model(evidence: Evidence) -> tuple[np.ndarray, np.ndarray]:
    stored = evidence.meta["examination"]
    assert stored["ranks"] == [1, 2, 3, 4]
    return np.array(stored["slope"]), np.array(stored["offset"])


def test_cascade_users_look_until_their_last_click(log: pa.Table, queries: QuerySet, tmp_path: Path):
    evidence = write(log, tmp_path, model="cascade")
    lists: dict[tuple[str, int], list[dict]] = {}
    for row in log.to_pylist():
        lists.setdefault((row["query"], row["session"]), []).append(row)
    looks = 0
    for rows in lists.values():
        clicked = [row["rank"] for row in rows if row["clicked"]]
        looks += max(clicked) if clicked else len(rows)
    assert evidence.totals(queries).looks.sum() == looks


def test_days_are_added_one_by_one(log: pa.Table, queries: QuerySet, tmp_path: Path):
    whole = write(log, tmp_path, "whole", "none", "whole")
    early = pa.compute.less(log["time"], pa.scalar(1_790_000_000 + 14 * 86_400, pa.timestamp("s", tz="UTC")))
    write(log.filter(early), tmp_path, "first", "none")
    added = write(log.filter(pa.compute.invert(early)), tmp_path, "second", "none")
    for name, values in whole.get_state().items():
        np.testing.assert_allclose(added.get_state()[name], values, rtol=1e-6)
    assert added.days == whole.days
    with pytest.raises(DataError, match=r"second\.parquet: the evidence has this log already"):
        write(log.filter(pa.compute.invert(early)), tmp_path, "second", "none")


def test_spellings_of_a_query_are_one_query(tmp_path: Path):
    (tmp_path / "log.csv").write_text(
        "query,session,document,rank,clicked\n"
        "Toy Story,s1,d1,1,1\n toy  story,s2,d1,1,0\nİstanbul,s3,d1,1,1\n,s4,d1,1,1\n"
    )
    with open_clicks([tmp_path / "log.csv"]) as opened:
        evidence = write_evidence(opened, estimate_examination(opened.counts(), "none"), tmp_path / "evidence")
    assert evidence.n_queries == 2
    columns = {"text": ["toy STORY", "İstanbul"]}
    asked = QuerySet.from_arrays([[0.0], [0.0]], qid=[1, 2], doc_id=["d1", "d1"], query_columns=columns)
    assert evidence.totals(asked).looks.tolist() == [2, 1]
    assert evidence.days is None


def test_examination_of_an_earlier_log_is_kept(log: pa.Table, tmp_path: Path):
    assert stored_examination(tmp_path / "evidence") is None
    write(log, tmp_path)
    stored = stored_examination(tmp_path / "evidence")
    assert isinstance(stored, Examination)
    assert stored.model == "swaps"
    assert stored.fits == Evidence.open(tmp_path / "evidence").meta["examination"]["fits"]
    assert stored.slope[0] == 1


CLIENTS = "query,session,document,rank,clicked,time,client\n" + "".join(
    f"{line}\n"
    for line in (
        "Alien,s1,d1,1,1,2026-10-01T10:00:00Z,ann",
        "alien,s2,d1,1,1,2026-10-01T11:00:00Z,ann",
        "alien,s3,d1,1,0,2026-10-01T12:00:00Z,ann",
        "alien,s4,d1,1,1,2026-10-02T12:00:00Z,ann",
        "ALIEN,s5,d1,1,0,2026-10-01T12:00:00Z,bob",
        "alien,s6,d1,1,1,2026-10-01T12:00:00Z,",
        "heat,s7,d2,1,1,2026-10-01T12:00:00Z,ann",
        "heat,s8,d2,1,1,2026-10-02T12:00:00Z,ann",
    )
)


def clients(tmp_path: Path, min_clients: int) -> tuple[Evidence, list[str]]:
    (tmp_path / "log.csv").write_text(CLIENTS)
    with open_clicks([tmp_path / "log.csv"], LogOptions(min_clients=min_clients)) as opened:
        examination = estimate_examination(opened.counts(), "none")
        return write_evidence(opened, examination, tmp_path / f"evidence{min_clients}"), opened.funnel.notes


def test_each_client_has_one_vote_a_day_and_one_client_is_no_crowd(tmp_path: Path):
    columns = {"text": ["alien", "heat"]}
    asked = QuerySet.from_arrays([[0.0], [0.0]], qid=[1, 2], doc_id=["d1", "d2"], query_columns=columns)
    everyone, notes = clients(tmp_path, 1)
    assert notes == []
    found = everyone.totals(asked)
    assert found.looks.tolist() == [4, 2]  # ann on two days, bob, and someone
    assert found.choices.tolist() == pytest.approx([2 / 3 + 1 + 0 + 1, 2])
    crowds, notes = clients(tmp_path, 2)
    assert notes == ["1 queries of fewer than 2 clients are no evidence"]
    assert crowds.totals(asked).looks.tolist() == [4, 0]
    assert clients(tmp_path, 4)[0].n_cells == 0


def days_of(log: pa.Table, folder: Path) -> list[Path]:
    """Write four logs of a week each."""
    folder.mkdir()
    week = pa.compute.divide(pa.compute.cast(log["time"], pa.int64()), 7 * 86_400)
    files = []
    for number in pa.compute.unique(week).to_pylist():
        files.append(folder / f"{number}.parquet")
        pq.write_table(log.filter(pa.compute.equal(week, number)), files[-1])
    return files


@pytest.mark.parametrize("executor", [Serial(), Processes(2)], ids=["serial", "processes"])
def test_logs_that_are_added_together_are_as_one_after_the_other(executor, log, tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "_CELLS_OF_SHARE", 100)
    files = days_of(log, tmp_path / "logs")
    for file in files:
        with open_clicks([file]) as opened:
            one = write_evidence(opened, estimate_examination(opened.counts(), "none"), tmp_path / "one", [file])
    funnel = Funnel()
    add_logs([[files[0]]], tmp_path / "together", "none")
    added = add_logs(
        [[file] for file in files[1:]], tmp_path / "together", "none", executor=executor, progress=funnel.add
    )
    assert added.meta == one.meta
    assert len(one.ids) > 0
    for name, values in one.get_state().items():
        np.testing.assert_array_equal(added.get_state()[name], values)
    assert funnel.read["impressions"] == sum(pq.read_metadata(file).num_rows for file in files[1:])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs", "one", "together"]
    with pytest.raises(DataError, match="the evidence has this log already"):
        add_logs([[files[1]]], tmp_path / "together", "none")


@pytest.mark.parametrize("together", [False, True], ids=["one log each", "several logs each"])
def test_two_writers_that_read_the_folder_at_once_both_count(together, log, tmp_path, monkeypatch):
    files = days_of(log, tmp_path / "logs")
    once = add_logs([[file] for file in files], tmp_path / "once", "none")
    add_logs([[files[0]]], tmp_path / "evidence", "none")
    reads, waited = [], []
    module = choices

    def read_together(path, files):
        found, writer = evidence_before_logs(path, files), threading.get_ident()
        reads.append(writer)
        own = reads.count(writer)
        wait_until(lambda: waited or len(reads) - own >= own)  # the other has read as often, or waits to read
        return found

    monkeypatch.setattr(module, "evidence_before_logs", read_together)

    def write(some: list[Path]) -> None:
        if together:
            add_logs([[file] for file in some], tmp_path / "evidence", "none", on_wait=waited.append)
            return
        for file in some:
            with open_clicks([file]) as opened:
                none = estimate_examination(opened.counts(), "none")
                write_evidence(opened, none, tmp_path / "evidence", [file], on_wait=waited.append)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, [files[1:3], files[3:]]))
    found = Evidence.open(tmp_path / "evidence")
    assert sorted(found.meta["logs"]) == sorted(once.meta["logs"])
    assert_same_counts(found, once)
    # The one who waits may look before the other one has written its name.
    assert re.search(rf"evidence is being written by (process {os.getpid()} on |another process)", waited[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["evidence", "logs", "once"]


def assert_same_counts(found: Evidence, expected: Evidence) -> None:
    """Assert that the cells are the same, and the ids in any order."""
    for name, values in expected.get_state().items():
        if not name.startswith("id_"):
            np.testing.assert_array_equal(found.get_state()[name], values)
    assert len(found.ids) == len(expected.ids)


COMMAND = [
    sys.executable,
    "-c",
    "from kinrank.cli import main; main()",
    "clicks",
    "--model",
    "none",
    "--evidence",
    "evidence",
]


def test_overlapping_jobs_count_what_one_job_counts(log, tmp_path):
    """The way beyond one database: jobs over files that add to one folder, here three at once."""
    files = [str(file) for file in days_of(log, tmp_path / "logs")]
    once = add_logs([[file] for file in files], tmp_path / "once", "none")
    shares = [files[0]], ["--workers", "1", *files[1:3]], ["--workers", "1", *files[3:]]
    with ExitStack() as stack:
        jobs = [stack.enter_context(subprocess.Popen([*COMMAND, *share], cwd=tmp_path)) for share in shares]
        assert [job.wait(timeout=300) for job in jobs] == [0, 0, 0]
    assert_same_counts(Evidence.open(tmp_path / "evidence"), once)


def test_command_waits_and_names_who_writes_to_the_folder(log, tmp_path):
    [file, *_] = days_of(log, tmp_path / "logs")
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*COMMAND, str(file)], cwd=tmp_path, **streams) as job:
        with locked(tmp_path / "evidence"):
            said = ""
            while "waiting for it" not in said:
                line = job.stderr.readline()
                assert line, said
                said += line
            assert f"evidence is being written by process {os.getpid()} on " in said
            assert not (tmp_path / "evidence").exists()
        job.communicate(timeout=300)
    assert job.returncode == 0
    assert Evidence.open(tmp_path / "evidence").n_cells > 0


def test_command_takes_folders_as_logs(log, tmp_path):
    files = days_of(log, tmp_path / "logs")
    add_logs([[file] for file in files], tmp_path / "expected", "none")
    for file in files:
        (tmp_path / file.stem).mkdir()
        file.rename(tmp_path / file.stem / "log.parquet")
    folders = [str(tmp_path / file.stem) for file in files]
    evidence = str(tmp_path / "evidence")
    result = CliRunner().invoke(app, ["clicks", *folders, "--evidence", evidence, "--model", "none", "--workers", "1"])
    assert result.exit_code == 0, result.output
    assert f"impressions  used  {log.num_rows:,}" in re.sub(" +", "  ", result.output)
    assert Evidence.open(evidence).n_cells == Evidence.open(tmp_path / "expected").n_cells
    refused = CliRunner().invoke(app, ["clicks", *folders, "--out", str(tmp_path / "j.csv"), "--workers", "2"])
    assert refused.exit_code == 2
    assert "--workers and --ray are for --evidence alone" in refused.output


@pytest.mark.parametrize("model", ["swaps", "trust", "cascade"])
def test_a_service_counts_lists_as_a_log_is_counted(model: str, log: pa.Table, queries: QuerySet, tmp_path: Path):
    rows = log.to_pylist()
    clients = [f"client {row['session'] % 7}" for row in rows]
    evidence = write(log.append_column("client", pa.array(clients)), tmp_path, model=model)
    shown: dict[tuple, dict[int, dict]] = {}
    for row, client in zip(rows, clients, strict=True):
        day = int(row["time"].timestamp() // 86_400)
        shown.setdefault((row["query"], row["session"], day, client), {})[row["rank"]] = row
    lists = [
        ShownList(
            int(query_keys(np.array([query]))[0]),
            day,
            hash(client),
            [by_rank[rank]["document"] for rank in sorted(by_rank)],
            {row["document"]: 1.0 for row in by_rank.values() if row["clicked"]},
        )
        for (query, _, day, client), by_rank in shown.items()
    ]
    votes = count_votes(lists, RankCurve.of(evidence.meta))
    keys, documents, days = zip(*votes, strict=True)
    looks, choices, *_ = zip(*votes.values(), strict=True)
    counted = Evidence.from_hashes(np.array(keys, np.uint64), hash_texts(np.array(documents)), looks, choices, days)
    for name in ("query", "offsets", "document", "day"):
        np.testing.assert_array_equal(counted.get_state()[name], evidence.get_state()[name])
    for name in ("looks", "choices"):
        np.testing.assert_allclose(counted.get_state()[name], evidence.get_state()[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("named", [True, False])
def test_a_query_in_two_spellings_counts_as_a_service_counts_it(named: bool, tmp_path: Path):
    # Cascade users: the second list of c1 ends at its click on d1, so that nobody looks at d2 there.
    header = "query,session,document,rank,clicked" + ",client" * named
    lists = [("alien", "s1", "c1", (0, 0)), ("Alien", "s2", "c1", (1, 0)), ("alien", "s3", "c2", (0, 1))]
    rows = [
        f"{query},{session},d{rank},{rank},{clicked}" + f",{client}" * named
        for query, session, client, clicks in lists
        for rank, clicked in enumerate(clicks, start=1)
    ]
    (tmp_path / "log.csv").write_text("\n".join([header, *rows]) + "\n")
    examination = Examination("cascade", np.array([1, 2]), *np.ones((1, 2)), *np.zeros((1, 2)), *np.ones((2, 2)), "")
    with open_clicks([tmp_path / "log.csv"]) as opened:
        evidence = write_evidence(opened, examination, tmp_path / "evidence")
    shown = [
        ShownList(
            1, 0, hash(client if named else session), ["d1", "d2"], {f"d{i}": 1.0 for i in (1, 2) if clicks[i - 1]}
        )
        for _, session, client, clicks in lists
    ]
    votes = count_votes(shown, RankCurve([1.0, 1.0], [0.0, 0.0], cascade=True))
    asked = QuerySet.from_arrays([[1.0], [2.0]], qid=[1, 1], doc_id=["d1", "d2"], query_columns={"text": ["alien"]})
    found = evidence.totals(asked)
    expected = [votes[1, document, 0] for document in ("d1", "d2")]
    np.testing.assert_allclose(found.looks, [vote.looks for vote in expected], rtol=1e-6)
    np.testing.assert_allclose(found.choices, [vote.choices for vote in expected], rtol=1e-6)


def test_impressions_of_days_to_come_are_no_evidence(tmp_path: Path):
    (tmp_path / "log.csv").write_text(
        "query,session,document,rank,clicked,time\n"
        "alien,s1,d1,1,1,2026-01-05T10:00:00\nalien,s2,d1,1,1,9999-12-31T10:00:00\n"
    )
    with open_clicks([tmp_path / "log.csv"]) as opened:
        evidence = write_evidence(opened, estimate_examination(opened.counts(), "none"), tmp_path / "evidence")
    assert evidence.days == (20_458, 20_458)
    assert evidence.get_state()["looks"].tolist() == [1.0]
