from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pajson
import pyarrow.parquet as pq
import pytest

from kinrank.clicks import ClickCounts, LogOptions, read_clicks
from kinrank.clicks.choices import write_evidence
from kinrank.clicks.examination import estimate_examination
from kinrank.clicks.read import WRONG_TIME, open_clicks
from kinrank.errors import DataError, FileFormatError, ParameterError
from kinrank.registry import import_extra

Rows = list[dict[str, Any]]
Read = Callable[..., ClickCounts]


def query(number: int, text: str = "alien", hits: tuple[str, ...] = ("a", "b", "c"), **other: Any) -> dict[str, Any]:
    return {
        "user_query": text,
        "query_id": f"q{number}",
        "client_id": f"client{number}",
        "timestamp": f"2026-10-{number:02}T12:00:00Z",
        "query_response_hit_ids": list(hits),
        **other,
    }


def event(
    number: int, document: str, action: str = "click", ordinal: int | None = None, **other: Any
) -> dict[str, Any]:
    position = {} if ordinal is None else {"position": {"ordinal": ordinal}}
    return {
        "action_name": action,
        "query_id": f"q{number}",
        "client_id": f"client{number}",
        "session_id": f"s{number}",
        "timestamp": f"2026-10-{number:02}T12:00:05Z",
        "event_attributes": {"object": {"object_id": document}, **position},
        **other,
    }


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that writes UBI queries and events as lines of JSON and reads them."""

    def run(queries: Rows, events: Rows, *, cascade: bool = False, **options: Any) -> ClickCounts:
        files = [tmp_path / "ubi_queries.ndjson", tmp_path / "ubi_events.ndjson"]
        for file, rows in zip(files, (queries, events), strict=True):
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return read_clicks(files, LogOptions(**options), cascade=cascade)

    return run


def cells(counts: ClickCounts) -> dict[tuple[str, str, int], tuple[float, float]]:
    """Return impressions and clicks by query, document and rank."""
    names = list(zip(counts.query.to_pylist(), counts.document.to_pylist(), strict=True))
    return {
        (*names[pair], int(rank)): (shown, clicks)
        for pair, rank, shown, clicks in zip(
            counts.pair_of_cell, counts.rank, counts.impressions.tolist(), counts.clicks.tolist(), strict=True
        )
    }


def test_impressions_are_the_returned_documents_if_none_are_logged(read: Read):
    counts = read([query(1), query(2, hits=("b", "a"))], [event(1, "b"), event(2, "b")])
    assert cells(counts) == {
        ("alien", "a", 1): (1, 0),
        ("alien", "a", 2): (1, 0),
        ("alien", "b", 1): (1, 1),
        ("alien", "b", 2): (1, 1),
        ("alien", "c", 3): (1, 0),
    }
    assert "not the same as seen" in counts.funnel.notes[0]
    assert counts.funnel.read == {"queries": 2, "events": 2, "impressions": 5}


@pytest.mark.parametrize("first", [0, 1])
def test_logged_impressions_with_ordinals_from_0_or_from_1(read: Read, first: int):
    shown = [event(1, document, "impression", first + place) for place, document in enumerate("ab")]
    counts = read([query(1)], [*shown, event(1, "b", ordinal=first + 1), event(1, "c", ordinal=first + 2)])
    assert cells(counts) == {("alien", "a", 1): (1, 0), ("alien", "b", 2): (1, 1)}
    assert counts.funnel.dropped == {("events", "document was not shown"): 1}
    assert ("ranks are counted from 0 in this log" in counts.funnel.notes) == (first == 0)


def test_ordinals_from_0_are_found_without_the_returned_documents(read: Read):
    shown = [event(1, document, "impression", place) for place, document in enumerate("ab")]
    counts = read([query(1, hits=())], shown)
    assert cells(counts) == {("alien", "a", 1): (1, 0), ("alien", "b", 2): (1, 0)}


def test_a_missing_ordinal_is_the_place_among_the_returned_documents(read: Read):
    assert cells(read([query(1)], [event(1, "c", "impression")])) == {("alien", "c", 3): (1, 0)}


def test_a_document_at_several_ranks_of_a_list_is_shown_at_the_first(read: Read):
    queries, clicks = [query(1, hits=("a", "b", "a"))], [event(1, "a")]
    expected = {("alien", "a", 1): (1, 1), ("alien", "b", 2): (1, 0)}
    assert cells(read(queries, clicks)) == expected
    shown = [event(1, document, "impression", place) for place, document in enumerate("aba", 1)]
    assert cells(read(queries, [*shown, *clicks])) == expected


def test_a_document_at_several_ranks_of_a_query_counts_at_each(read: Read):
    counts = read([query(1, hits=("a", "b")), query(2, hits=("b", "a")), query(3, hits=("b", "a"))], [event(2, "a")])
    assert cells(counts)["alien", "a", 1] == (1, 0)
    assert cells(counts)["alien", "a", 2] == (2, 1)


def test_double_clicks_count_once(read: Read):
    counts = read([query(1)], [event(1, "a"), event(1, "a"), event(1, "a")])
    assert cells(counts)["alien", "a", 1] == (1, 1)
    assert counts.funnel.dropped == {("events", "repeated action"): 2}


def test_bots_are_dropped_by_their_rate_of_queries(read: Read):
    crawler = [query(1, query_id=f"b{i}", client_id="crawler") for i in range(6)]
    counts = read([*crawler, query(2)], [event(2, "a")], max_queries_per_day=5)
    assert counts.impressions.sum() == 3
    assert counts.funnel.dropped == {("queries", "client is a bot"): 6}
    assert any("1 clients are bots" in note for note in counts.funnel.notes)


def test_bots_are_dropped_by_their_rate_of_clicks(read: Read):
    crawled = [query(day, client_id="crawler") for day in range(1, 5)]
    clicks = [event(day, document, client_id="crawler") for day in range(1, 5) for document in "abc"]
    counts = read([*crawled, query(9)], clicks, min_impressions=10)
    assert counts.clicks.sum() == 0
    assert counts.funnel.dropped[("queries", "client is a bot")] == 4
    assert counts.funnel.dropped[("events", "query was dropped")] == 12


@pytest.mark.parametrize("text", ["Alien", "  alien ", "ALIEN", "alien\u00a0"])
def test_queries_that_differ_by_case_and_spaces_are_one(read: Read, text: str):
    assert cells(read([query(1), query(2, text)], []))["alien", "a", 1] == (2, 0)


def test_queries_that_differ_by_unicode_form_are_one(read: Read):
    counts = read([query(1, "ame\u0301lie  film"), query(2, "am\u00e9lie film")], [])
    assert cells(counts)["am\u00e9lie film", "a", 1] == (2, 0)


CHANGED = [{"page": 2}, {"sort": "price"}, {"filters": ["year:1979"]}, {"from": 10}, {"facets": {"year": 1979}}]
SAME = [
    {"page": 1},
    {"page": 0},
    {"sort": "_score"},
    {"filters": []},
    {"from": 0},
    {"page_size": 20},
    {"experiment": "b"},
]


@pytest.mark.parametrize("attributes", CHANGED)
def test_filtered_sorted_and_later_lists_are_dropped(read: Read, attributes: dict[str, Any]):
    counts = read([query(1), query(2, query_attributes=attributes)], [])
    assert cells(counts)["alien", "a", 1] == (1, 0)
    assert counts.funnel.dropped == {("queries", "filtered, sorted or a later page"): 1}


@pytest.mark.parametrize("attributes", SAME)
def test_attributes_that_do_not_change_the_list_are_kept(read: Read, attributes: dict[str, Any]):
    counts = read([query(1), query(2, query_attributes=attributes)], [])
    assert cells(counts)["alien", "a", 1] == (2, 0)


def test_lists_with_attributes_are_kept_apart_or_together_on_request(read: Read):
    queries = [query(1), query(2, query_attributes={"sort": "price"})]
    apart = read(queries, [], attributes="apart")
    assert len(set(apart.query.to_pylist())) == 2
    assert not apart.funnel.dropped
    assert cells(read(queries, [], attributes="ignore"))["alien", "a", 1] == (2, 0)


def test_lists_of_ones_own_ranker_are_excluded(read: Read):
    queries = [query(1), query(2, query_attributes={"model": "kin"})]
    counts = read(queries, [event(2, "a")], exclude={"model": "kin"})
    assert counts.clicks.sum() == 0
    assert counts.funnel.dropped == {("queries", "excluded by an attribute"): 1, ("events", "query was dropped"): 1}


@pytest.mark.parametrize(("explored", "lists"), [(0.05, 1), (True, 1), (0.0, 0), (None, 0)])
def test_lists_that_explored_are_used_and_counted(read: Read, explored: object, lists: int):
    counts = read([query(1), query(2, query_attributes={"explored": explored})], [])
    assert counts.impressions.sum() == 6
    notes = [note for note in counts.funnel.notes if "explored" in note]
    assert notes == ["lists that explored, and so tell how ranks are examined: 1"] * lists


def test_events_that_cannot_be_used_are_counted_by_reason(read: Read):
    events = [
        event(1, "a", query_id=None),
        event(7, "a"),
        event(1, "a", "watch"),
        event(1, "z"),
        event(1, "a", event_attributes={}),
        event(1, "a", timestamp="2026-09-30T12:00:00Z"),
        event(1, "a", timestamp="2026-10-05T12:00:00Z"),
        event(1, "b", timestamp="2026-10-01T14:00:05+02:00"),  # the same instant in another zone
    ]
    counts = read([query(1)], events)
    assert counts.clicks.sum() == 1
    assert {reason: rows for (_, reason), rows in counts.funnel.dropped.items()} == {
        "no query id": 1,
        "query is not in the log": 1,
        "action does not count": 1,
        "document was not shown": 1,
        "no document": 1,
        "the clocks of the query and the event disagree": 2,
    }


def test_queries_that_cannot_be_used_are_counted_by_reason(read: Read, tmp_path: Path):
    counts = read([query(1), query(1), query(2, " "), query(3, query_id=None)], [event(1, "a")], since="2026-01-01")
    reasons = {"query id seen before": 1, "no query text": 1, "no query id": 1}
    assert {reason: rows for (_, reason), rows in counts.funnel.dropped.items()} == reasons
    assert cells(counts)["alien", "a", 1] == (1, 1)


def test_lines_that_are_no_json_are_counted(read: Read, tmp_path: Path):
    read([query(1)], [event(1, "a")])
    with (tmp_path / "ubi_queries.ndjson").open("a") as stream:
        stream.write("{broken\n")
    counts = read_clicks([tmp_path / "ubi_queries.ndjson", tmp_path / "ubi_events.ndjson"])
    assert counts.funnel.dropped == {("queries", "line cannot be read"): 1}


def test_deep_ranks_and_old_queries_are_dropped(read: Read):
    counts = read([query(1), query(5)], [], max_rank=2, since="2026-10-02")
    assert cells(counts) == {("alien", "a", 1): (1, 0), ("alien", "b", 2): (1, 0)}
    assert counts.funnel.dropped == {("queries", "before the first date"): 1, ("impressions", "rank below 2"): 1}


def test_stronger_actions_count_more(read: Read):
    events = [event(1, "a"), event(1, "a", "purchase"), event(1, "b", "add_to_cart"), event(2, "a")]
    counts = read([query(1), query(2)], events, actions={"click": 1, "add_to_cart": 3, "purchase": 5})
    assert counts.clicks.tolist() == [2, 1, 0]
    assert counts.reward.tolist() == pytest.approx([1.2, 0.6, 0])


def test_users_who_stop_at_their_last_click(read: Read):
    counts = read([query(1), query(2)], [event(1, "b")], cascade=True)
    assert counts.examined.tolist() == [2, 2, 1]


def test_parts_of_the_log(read: Read):
    counts = read([query(day) for day in range(1, 11)], [event(10, "a"), event(3, "a")])
    parts = {name: counts.part(name) for name in ("early", "late", "even", "odd")}
    assert {name: part.impressions.sum() for name, part in parts.items()} == {
        "early": 24,
        "late": 6,
        "even": 12,
        "odd": 12,
    }
    assert {name: part.clicks.sum() for name, part in parts.items()} == {"early": 1, "late": 1, "even": 0, "odd": 1}


def test_parquet_is_read_like_lines_of_json(read: Read, tmp_path: Path):
    queries = [query(1, query_attributes={"page": 2}), query(2, query_attributes={"page": 1})]
    events = [event(2, "b", ordinal=2), event(2, "a", "impression", 1), event(2, "b", "impression", 2)]
    from_lines = read(queries, events)
    files = []
    for name in ("ubi_queries", "ubi_events"):
        table = pajson.read_json(tmp_path / f"{name}.ndjson")
        files.append(tmp_path / f"{name}.parquet")
        pq.write_table(table, files[-1])
    assert cells(read_clicks(files)) == cells(from_lines) == {("alien", "a", 1): (1, 0), ("alien", "b", 2): (1, 1)}


def test_events_of_metarank_as_ubi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = (Path(__file__).parents[2] / "docs" / "ecosystem.md").read_text()
    recipe = re.search(r"```python\n(import duckdb\n.*?)```", page, re.DOTALL)
    assert recipe is not None
    import_extra("duckdb", "clicks")  # reports that it is missing, where the recipe would fail
    ranking = {
        "event": "ranking", "id": "r1", "timestamp": "1599391467000", "user": "u1", "session": "s1",
        "fields": [{"name": "query", "value": "Alien"}], "items": [{"id": "a"}, {"id": "b"}],
    }  # fmt: skip
    click = {
        "event": "interaction", "id": "i1", "ranking": "r1", "timestamp": "1599391469000", "user": "u1",
        "type": "click", "item": "b",
    }  # fmt: skip
    item = {"event": "item", "id": "m1", "item": "a", "timestamp": "1599391460000", "fields": []}
    (tmp_path / "events.ndjson").write_text("".join(json.dumps(row) + "\n" for row in (item, ranking, click)))
    monkeypatch.chdir(tmp_path)
    exec(recipe[1], {})
    counts = read_clicks(["queries.parquet", "events.parquet"])
    assert cells(counts) == {("alien", "a", 1): (1, 0), ("alien", "b", 2): (1, 1)}
    assert counts.funnel.read == {"queries": 1, "events": 1, "impressions": 2}


TABLE = {
    "q": ["Alien", "alien", "alien", "alien", None],
    "s": ["s1", "s1", "s2", "s2", "s3"],
    "d": ["a", "b", "a", "a", "a"],
    "pos": [0, 1, 1, 1, 2],
    "hit": [True, False, True, True, False],
    "when": ["2026-10-01", "2026-10-01", "2026-10-02", "2026-10-02", "2026-10-02"],
}
NAMES = {"query": "q", "session": "s", "document": "d", "rank": "pos", "clicked": "hit", "time": "when"}


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_with_named_columns(tmp_path: Path, suffix: str):
    file = tmp_path / f"log.{suffix}"
    table = pa.table(TABLE)
    if suffix == "csv":
        import pyarrow.csv as pacsv

        pacsv.write_csv(table, file)
    else:
        pq.write_table(table, file)
    counts = read_clicks([file], LogOptions(columns=NAMES))
    expected = {("alien", "a", 1): (1, 1), ("alien", "a", 2): (1, 1), ("alien", "b", 2): (1, 0)}
    assert cells(counts) == expected
    reasons = {reason: rows for (_, reason), rows in counts.funnel.dropped.items()}
    assert reasons == {"repeated click": 1, "no query, document or rank": 1}
    assert "ranks are counted from 0 in this log" in counts.funnel.notes


def test_bots_in_a_table(tmp_path: Path):
    file = tmp_path / "log.csv"
    rows = [f"alien,s{i},a,1,1,crawler" for i in range(10)] + ["alien,s,a,1,0,person"]
    file.write_text("\n".join(["query,session,document,rank,clicked,client", *rows]))
    counts = read_clicks([file], LogOptions(min_impressions=10))
    assert cells(counts) == {("alien", "a", 1): (1, 0)}
    assert counts.funnel.dropped == {("impressions", "client is a bot"): 10}


@pytest.mark.parametrize("name", ["client_id", "user", "User ID", "visitorId", "client"])
def test_clients_are_found_under_common_names(tmp_path: Path, name: str):
    file = tmp_path / "log.csv"
    rows = [f"alien,s{i},a,1,1,2026-10-01,crawler" for i in range(10)] + ["alien,s,a,1,0,2026-10-01,person"]
    file.write_text("\n".join([f"query,session,document,rank,clicked,time,{name}", *rows]))
    counts = read_clicks([file], LogOptions(min_impressions=10))
    assert counts.funnel.dropped == {("impressions", "client is a bot"): 10}
    said = f"the client is taken from the column {name!r}: name another one with --columns client=NAME"
    assert counts.funnel.columns == ([] if name == "client" else [said])


def test_a_log_without_clients_or_times_says_what_that_means(tmp_path: Path, read: Read):
    (tmp_path / "log.csv").write_text("query,session,document,rank,clicked,who\nalien,s1,a,1,1,person\n")
    counts = read_clicks([tmp_path / "log.csv"])
    first, second = counts.funnel.columns
    assert first.startswith("no client column: bots are not found,")
    assert first.endswith("; name it with --columns client=NAME")
    assert second.startswith("no time column: what people chose does not age")
    assert read_clicks([tmp_path / "log.csv"], LogOptions(columns={"client": "who"})).funnel.columns == [second]
    lists = read([query(1, client_id=None)], [event(1, "a", client_id=None)])
    [said] = lists.funnel.columns
    assert said.startswith("no client column: ")
    assert said.endswith("; log it with each query")
    assert not read([query(1)], [event(1, "a")]).funnel.columns


def test_bots_in_a_table_by_their_rate_of_queries(tmp_path: Path):
    file = tmp_path / "log.csv"
    rows = [f"alien,s{i},{document},1,0,2026-10-01,crawler" for i in range(6) for document in "ab"]
    people = [f"alien,s{i},a,1,0,2026-10-{i:02},person" for i in range(1, 9)]
    file.write_text("\n".join(["query,session,document,rank,clicked,time,client", *rows, *people]))
    counts = read_clicks([file], LogOptions(max_queries_per_day=5))
    assert cells(counts) == {("alien", "a", 1): (8, 0)}
    assert counts.funnel.dropped == {("impressions", "client is a bot"): 12}


def test_blank_queries_in_a_table_are_counted(tmp_path: Path):
    file = tmp_path / "log.csv"
    file.write_text("query,session,document,rank,clicked\nalien,s1,a,1,1\n\u00a0 ,s2,a,1,1\n")
    counts = read_clicks([file])
    assert counts.funnel.dropped == {("impressions", "no query text"): 1}
    assert counts.funnel.kept("impressions") == counts.impressions.sum() == 1


TIMES = ["2026-10-01T12:00:00", "2026-10-02T12:00:00", "2026-10-03T00:00:00", "2026-10-09T00:00:00"]


@pytest.mark.parametrize(
    "kind",
    [
        "text", "time", "zoned", "seconds", "milliseconds", "microseconds", "nanoseconds", "text of seconds",
        "text of microseconds", "floating seconds", "32 bits",
    ],
)  # fmt: skip
def test_times_in_every_type(tmp_path: Path, kind: str):
    texts = pa.array(TIMES)
    instants = texts.cast(pa.timestamp("ms"))
    times = {
        "text": texts, "time": instants, "zoned": instants.cast(pa.timestamp("ms", "UTC")),
        "milliseconds": instants.cast(pa.int64()),
        "seconds": pa.compute.divide(instants.cast(pa.int64()), 1000),
        "microseconds": pa.compute.multiply(instants.cast(pa.int64()), 1000),
        "nanoseconds": pa.compute.multiply(instants.cast(pa.int64()), 1_000_000),
        "text of seconds": pa.compute.divide(instants.cast(pa.int64()), 1000).cast(pa.string()),
        "text of microseconds": pa.compute.multiply(instants.cast(pa.int64()), 1000).cast(pa.string()),
        "floating seconds": pa.compute.divide(instants.cast(pa.int64()).cast(pa.float64()), 1000.0),
        "32 bits": pa.compute.divide(instants.cast(pa.int64()), 1000).cast(pa.int32()),
    }[kind]  # fmt: skip
    n = len(TIMES)
    log = {"query": ["alien"] * n, "session": range(n), "document": ["a"] * n, "rank": [1] * n, "clicked": [True] * n}
    pq.write_table(pa.table({**log, "time": times}), tmp_path / "log.parquet")
    counts = read_clicks([tmp_path / "log.parquet"], LogOptions(since="2026-10-02"))
    assert counts.funnel.dropped == {("impressions", "before the first date"): 1}
    days = {name: counts.part(name).clicks.tolist() for name in ("even", "odd", "late")}
    assert days == {"even": [1], "odd": [1], "late": [1]}


@pytest.mark.parametrize("wrong", ["1970-01-21T00:00:00", "9999-12-31", "0", "60000000000", "4000000000000"])
def test_times_that_cannot_be_are_counted_and_move_no_day(tmp_path: Path, read: Read, wrong: str):
    rows = [f"alien,s{i},a,1,1,{time}" for i, time in enumerate([*TIMES, wrong])]
    (tmp_path / "log.csv").write_text("\n".join(["query,session,document,rank,clicked,time", *rows]))
    with open_clicks([tmp_path / "log.csv"]) as log:
        counts = log.counts()
        evidence = write_evidence(log, estimate_examination(counts, "none"), tmp_path / "evidence")
    assert counts.funnel.dropped == {("impressions", WRONG_TIME): 1}
    assert counts.part("late").clicks.tolist() == [1], "the last fifth of the time of the others"
    assert evidence.days == (20_727, 20_735), "1 to 9 October 2026"
    lists = read([query(1, "alien"), query(2, "alien", timestamp=wrong)], [event(1, "a"), event(2, "a")])
    assert lists.funnel.dropped == {("queries", WRONG_TIME): 1, ("events", "query was dropped"): 1}


def test_errors_say_what_to_do(tmp_path: Path, read: Read):
    with pytest.raises(DataError, match="no such file"):
        read_clicks([tmp_path / "none.ndjson"])
    with pytest.raises(DataError, match=r"no impression is left of this log .*1 queries: no query text"):
        read([query(1, "")], [event(1, "a")])
    with pytest.raises(DataError, match="pass both the queries and the events"):
        read_clicks([tmp_path / "ubi_queries.ndjson"])
    (tmp_path / "log.csv").write_text("query,session,rank,clicked\na,b,1,1\n")
    with pytest.raises(FileFormatError, match=r"no column 'document' for the document.*--columns document=NAME"):
        read_clicks([tmp_path / "log.csv"])
    (tmp_path / "log.ndjson").write_text("nothing\n")
    with pytest.raises(FileFormatError, match="no JSON object per line"):
        read_clicks([tmp_path / "log.ndjson"])
    with pytest.raises(ParameterError, match="attributes must be one of drop, apart, ignore"):
        LogOptions(attributes="keep")
    with pytest.raises(ParameterError, match="unknown column 'doc'"):
        LogOptions(columns={"doc": "d"})


def test_too_little_memory_names_the_option(tmp_path: Path):
    n = 200_000
    rows = {
        "query": [f"query {i}" for i in range(n)],
        "session": list(range(n)),
        "document": [f"document {i}" for i in range(n)],
        "rank": [1] * n,
        "clicked": [True] * n,
    }
    pq.write_table(pa.table(rows), tmp_path / "log.parquet")
    with pytest.raises(DataError, match=r"5MB of memory are not enough for this log: allow more \(--set memory=SIZE\)"):
        read_clicks([tmp_path / "log.parquet"], LogOptions(memory="5MB"))
