from __future__ import annotations

from pathlib import Path

import duckdb  # noqa: F401 - skips this file if it is not installed
import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest

from kinrank import QuerySet, load, read_parquet
from kinrank.clicks.arms import compare_arms
from kinrank.clicks.read import LogOptions
from kinrank.data.split import split_queries
from kinrank.datasets import make_two_camps, simulate_clicks
from kinrank.engines._logger import FeatureLogger, ResumableLog, read_judgments
from kinrank.engines.base import RetryingPool
from kinrank.errors import DataError, FileFormatError
from kinrank.memory.evidence import Evidence
from tests.engines.toy import ToyEngine


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change into a folder with a simulated log of a changing ranking and one of a frozen ranking."""
    monkeypatch.chdir(tmp_path)
    queries = make_two_camps(n_queries=100, n_docs=8)
    for name, shuffle in (("log", 0.5), ("frozen", 0.0)):
        table = simulate_clicks(queries, queries.X[:, 0], n_lists=30, tail=0.5, depth=4, shuffle=shuffle)
        pq.write_table(table, f"{name}.parquet")
    return tmp_path / "log.parquet"


def test_a_log_becomes_judgments(kinrank, log: Path):
    done = kinrank("clicks", log, "--out", "judgments.parquet")
    assert done.exit_code == 0, done.stderr
    assert "impressions  read" in done.stdout
    assert "rank  examined  95% interval" in done.stdout
    assert "Identifiable for 4 of 4 ranks" in done.stderr
    assert "grades increase at" in done.stderr
    judged = read_judgments("judgments.parquet")
    assert len(judged) == 100
    assert judged.sample_weight is not None


def test_fields_of_the_options_of_a_log_can_be_set(kinrank, log: Path):
    done = kinrank("clicks", log, "--out", "judgments.parquet", "--set", "max_rank=2")
    assert done.exit_code == 0, done.stderr
    assert "Identifiable for 2 of 2 ranks" in done.stderr
    wrong = kinrank("clicks", log, "--out", "judgments.parquet", "--set", "max_rank=deep")
    assert wrong.exit_code == 2
    assert "max_rank must be int, got 'deep'" in wrong.stderr


def test_a_frozen_ranking_is_refused_unless_no_correction_is_asked_for(kinrank, log: Path):
    done = kinrank("clicks", "frozen.parquet", "--out", "judgments.csv")
    assert done.exit_code == 2
    assert "Not identifiable" in done.stderr
    assert not Path("judgments.csv").exists()
    done = kinrank("clicks", "frozen.parquet", "--out", "judgments.csv", "--model", "none", "--grades", "0.5,1")
    assert done.exit_code == 0, done.stderr
    assert set(read_judgments("judgments.csv").grades) == {0, 1, 2}


def test_from_clicks_to_a_trained_model(kinrank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    texts = np.repeat([f"query {number}" for number in range(24)], 6)
    documents = np.tile([f"d{number}" for number in range(6)], 24)
    liked = (np.arange(len(texts)) % 6 % 3).astype(float)  # d2 and d5 most
    shown = QuerySet.from_arrays(liked[:, None], liked, qid=texts, doc_id=documents)
    lists = simulate_clicks(shown, np.arange(len(texts)) % 6, n_lists=60, depth=4, shuffle=1.0)
    pq.write_table(lists, "log.parquet")
    assert kinrank("clicks", "log.parquet", "--out", "judgments.parquet").exit_code == 0
    log = ResumableLog(tmp_path / "train.parquet", read_judgments("judgments.parquet"), FeatureLogger(ToyEngine()))
    log.write(RetryingPool(1), lambda _: None)
    train = read_parquet("train.parquet")
    assert train.n_rows == 240
    assert np.array_equal(train.row_weights == np.float32(0.05), ~train.judged)  # nobody saw these documents
    done = kinrank("train", "train.parquet", "--model", "model")
    assert done.exit_code == 0, done.stderr
    seen = train.only_judged()[:1]
    assert seen.doc_id is not None
    assert seen.doc_id[np.argmax(load("model").predict(seen))] in ("d2", "d5")


def test_what_one_client_asked_is_in_no_judgments_and_in_no_model(kinrank, tmp_path: Path, monkeypatch):
    """A query that one client asked twelve times is written nowhere as text: neither as name nor as example."""
    monkeypatch.chdir(tmp_path)
    texts = [f"movie {i}" for i in range(30) for _ in range(4)]
    columns = ["query,session,document,rank,clicked,time,client"]
    rows = [
        f"{text},s{client},d{i % 4},{i % 4 + 1},{int(i % 4 == client % 2)},2026-10-01,c{client}"
        for i, text in enumerate(texts)
        for client in range(4)
    ]
    private = [
        f"My Secret,p{i},d{place},{place + 1},{int(place == 0)},2026-10-01,c9" for i in range(12) for place in range(4)
    ]
    Path("log.csv").write_text("\n".join([*columns, *rows, *private]))
    done = kinrank("clicks", "log.csv", "--out", "judgments.parquet", "--model", "none", "--evidence", "evidence")
    assert done.exit_code == 0, done.stderr
    assert "1 queries of too few clients are not judged (--set min_clients=N)" in done.stderr
    judgments = pq.read_table("judgments.parquet")
    assert set(judgments["query"].to_pylist()) == set(texts)
    features = pa.array(np.arange(len(judgments)) % 4 / 4.0 + 0.1)
    pq.write_table(judgments.append_column("f", features), "train.parquet")
    done = kinrank("train", "train.parquet", "--ranker", "knn", "--model", "model")
    assert done.exit_code == 0, done.stderr
    assert b"movie 7" in _content("model") + _content("model", wide=True), "models name their queries"
    for folder in ("model", "evidence"):
        assert b"secret" not in _content(folder).lower() + _content(folder, wide=True).lower()
    done = kinrank("clicks", "log.csv", "--out", "all.parquet", "--model", "none", "--set", "min_clients=1")
    assert "my secret" in pq.read_table("all.parquet")["query"].to_pylist(), done.stderr


def _content(folder: str, *, wide: bool = False) -> bytes:
    """Return the bytes of a folder; `wide` without the zeros between the letters of NumPy's texts."""
    raw = b"".join(file.read_bytes() for file in sorted(Path(folder).rglob("*")) if file.is_file())
    return raw.replace(b"\0", b"") if wide else raw


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--actions", "click", "--actions expects NAME=VALUE,..., got 'click'"),
        ("--actions", "click=much", "--actions expects numbers, got 'much'"),
        ("--columns", "doc=d", "unknown column 'doc'"),
        ("--grades", "2,1", "thresholds must be positive and ascend"),
        ("--model", "dbn", "unknown model 'dbn'"),
    ],
)
def test_wrong_options(kinrank, log: Path, option: str, value: str, message: str):
    done = kinrank("clicks", log, "--out", "judgments.parquet", option, value)
    assert done.exit_code == 2
    assert message in done.stderr


def test_evidence_is_added_night_by_night(kinrank, log: Path):
    nights = pq.read_table(log)
    last = pa.compute.greater(nights["time"], pa.scalar(1_790_000_000 + 27 * 86_400, pa.timestamp("s", tz="UTC")))
    pq.write_table(nights.filter(pa.compute.invert(last)), "month.parquet")
    pq.write_table(nights.filter(last).slice(0, 40), "night.parquet")
    done = kinrank("clicks", "month.parquet", "--evidence", "evidence")
    assert done.exit_code == 0, done.stderr
    assert "100 queries, 2026-09-21 to 2026-10-18" in done.stderr
    looks = Evidence.open("evidence").get_state()["looks"].sum()
    done = kinrank("clicks", "night.parquet", "--evidence", "evidence")
    assert done.exit_code == 0, done.stderr
    assert "Examination of ranks as in the log that was added before." in done.stderr
    assert Evidence.open("evidence").get_state()["looks"].sum() > looks
    done = kinrank("clicks", "night.parquet", "--evidence", "evidence")
    assert done.exit_code == 2
    assert "night.parquet: the evidence has this log already" in done.stderr


def test_the_folder_of_a_log_is_counted_by_day(kinrank, log: Path):
    for row in pq.read_table(log).group_by(["query", "session", "time"]).aggregate([("document", "list")]).to_pylist():
        folder = Path("log") / "impressions" / f"day={row['time'].date()}"
        folder.mkdir(parents=True, exist_ok=True)
        lists = {
            "list": [f"{row['query']}/{row['session']}"],
            "query": [row["query"]],
            "documents": [row["document_list"]],
        }
        pq.write_table(pa.table(lists), folder / f"{row['query']}-{row['session']}.parquet")
    done = kinrank("clicks", "log", "--evidence", "evidence", "--model", "none")
    assert done.exit_code == 0, done.stderr
    assert "impressions  read" in done.stdout
    days = len(list(Path("log/impressions").iterdir()))
    assert f"{days} of {days} partitions counted" in done.stderr
    assert "100 queries, 2026-09-21 to 2026-10-19" in done.stderr
    looks = Evidence.open("evidence").get_state()["looks"].sum()
    again = kinrank("clicks", "log", "--evidence", "evidence", "--workers", "1")
    assert again.exit_code == 0, again.stderr
    assert f"0 of {days} partitions counted" in again.stderr
    assert Evidence.open("evidence").get_state()["looks"].sum() == looks
    anew = kinrank("clicks", "log", "--evidence", "evidence", "--model", "none", "--refit", "--set", "max_rank=2")
    assert f"{days} of {days} partitions counted" in anew.stderr
    assert Evidence.open("evidence").get_state()["looks"].sum() < looks
    refused = kinrank("clicks", "log", "--evidence", "evidence", "--out", "judgments.csv")
    assert refused.exit_code == 2
    assert "the folder of a log is counted for --evidence alone" in refused.stderr
    refused = kinrank("clicks", "log.parquet", "--evidence", "other", "--refit")
    assert refused.exit_code == 2
    assert "--refit is for the folder of a log and --evidence" in refused.stderr
    judged = kinrank("clicks", "log", "--out", "judgments.csv", "--model", "none")
    assert judged.exit_code == 0, judged.stderr


def test_human_judgments_become_evidence(kinrank, log: Path):
    Path("people.csv").write_text("qid,query,doc_id,y\n1,alien,d7,2\n1,alien,d9,0\n")
    options = ("--evidence", "evidence", "--human", "people.csv", "--human-looks", "50")
    done = kinrank("clicks", log, *options)
    assert done.exit_code == 0, done.stderr
    columns = {"text": ["alien"]}
    asked = QuerySet.from_arrays([[0.0], [0.0]], qid=[1, 1], doc_id=["d7", "d9"], query_columns=columns)
    assert Evidence.open("evidence").totals(asked).choices.tolist() == [50, 0]
    done = kinrank("clicks", log, "--human-looks", "50", "--out", "judgments.csv")
    assert done.exit_code == 2
    assert "--human-looks needs --human FILE and --evidence DIR" in done.stderr


def test_evidence_that_cannot_be_written_is_refused_before_the_log_is_read(kinrank, log: Path):
    Path("copy.parquet").write_bytes(log.read_bytes())
    Path("broken.csv").write_text("x,y\n1,2\n")
    Path("other").mkdir()
    Path("other/notes.txt").write_text("mine")
    for args, message in (
        ([log, "--evidence", "other"], "other is not a kinrank evidence folder"),
        ([log, "copy.parquet", "--evidence", "new"], "copy.parquet: the same log as"),
        ([log, "copy.parquet", "--evidence", "new", "--workers", 1], "copy.parquet: the same log as"),
        (["none.parquet", "--evidence", "new", "--workers", 1], "none.parquet: no such file"),
        ([log, "--evidence", "new", "--human", "broken.csv", "--human-looks", 9], "broken.csv: no column 'qid'"),
    ):
        done = kinrank("clicks", *args)
        assert (done.exit_code, done.stdout, message in done.stderr) == (2, "", True)
    assert not Path("new").exists()


def test_a_log_without_anything_to_write_is_refused(kinrank, log: Path):
    done = kinrank("clicks", log)
    assert done.exit_code == 2
    assert "pass --out FILE for judgments, --evidence DIR for evidence, or both" in done.stderr


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_judgments_have_the_day_on_which_a_query_was_first_asked(kinrank, tmp_path: Path, monkeypatch, suffix: str):
    monkeypatch.chdir(tmp_path)
    columns = ["query,session,document,rank,clicked,time"]
    rows = [
        f"movie {query},s{query}-{day},d{place},{place + 1},{int(place == day % 2)},2026-10-{query + day + 1:02}"
        for query in range(20)
        for day in range(8)
        for place in np.random.default_rng([query, day]).permutation(4)
    ]
    Path("log.csv").write_text("\n".join(columns + rows))
    done = kinrank("clicks", "log.csv", "--out", f"judgments.{suffix}", "--model", "none")
    assert done.exit_code == 0, done.stderr
    judged = read_judgments(f"judgments.{suffix}")
    dates = dict(zip(judged.qid.tolist(), judged.query_columns["date"].tolist(), strict=True))
    assert dates == {f"movie {query}": f"2026-10-{query + 1:02}" for query in range(20)}
    ResumableLog(tmp_path / "week.parquet", judged, FeatureLogger(ToyEngine())).write(RetryingPool(1), lambda _: None)
    logged = read_parquet("week.parquet")
    assert sorted(logged.query_columns["date"]) == sorted(dates.values())
    _, new = split_queries(logged, (0.8, 0.2), time="date")
    assert sorted(new.qid) == [f"movie {query}" for query in range(16, 20)]


def test_judgments_of_a_log_without_times_have_no_date(kinrank, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("log.csv").write_text("query,session,document,rank,clicked\na,s1,d1,1,1\na,s1,d2,2,0\na,s2,d1,1,0\n")
    assert kinrank("clicks", "log.csv", "--out", "judged.parquet", "--model", "none").exit_code == 0
    assert "query.date" not in pq.read_table("judged.parquet").column_names


def test_a_table_is_compared_by_a_column(kinrank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    lists = np.arange(800)
    table = pa.table({
        "query": pa.array(np.repeat([f"q{number % 7}" for number in lists], 2)),
        "visit": pa.array(np.repeat(lists, 2)),
        "rank": pa.array(np.tile([1, 2], 800)),
        "clicked": pa.array(np.column_stack([lists % 2, lists % 3 == 0]).ravel().astype(bool)),
        "variant": pa.array(np.repeat(np.array(["old", "new"])[lists % 2], 2)),
        "margin": pa.array(np.column_stack([lists % 2 * 9.5, 0 * lists]).ravel()),
    })  # fmt: skip
    pq.write_table(table, "log.parquet")
    done = kinrank("clicks", "log.parquet", "--compare", "variant", "--columns", "session=visit,value=margin")
    assert done.exit_code == 0, done.stderr
    lines = {line.split("  ")[0]: line.split() for line in done.stdout.splitlines()}
    assert lines["variant"][:3] == ["variant", "new", "old"]
    assert lines["value per search"][3:6] == ["9.5000", "0.0000", "-9.5000"]
    assert "old is worse in clicks per search" in done.stderr
    with pytest.raises(FileFormatError, match="no column 'session'"):
        compare_arms(["log.parquet"], "variant")
    with pytest.raises(FileFormatError, match="no column 'profit'"):
        compare_arms(["log.parquet"], "variant", options=LogOptions(columns={"session": "visit", "value": "profit"}))
    with pytest.raises(DataError, match="'visit' must name two arms, got 800"):
        compare_arms(["log.parquet"], "visit", options=LogOptions(columns={"session": "visit"}))
