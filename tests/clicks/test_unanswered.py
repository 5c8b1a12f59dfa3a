"""Searches without results and without clicks, and what they may have meant."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb  # noqa: F401 - skips this file if it is not installed
import pytest

from kinrank.clicks._unanswered import UnansweredQuery, unanswered_queries

ASKED = {  # text: searches, documents of each list (None: not logged), clicks of each search, clients
    "Iron Man": (9, ["d1", "d2"], ["d1"], 9),
    "irnoman": (4, [], [], 4),
    "iron mann": (3, ["d9"], [], 3),
    "heat": (5, ["d5"], [], 5),
    "rare": (1, ["d5"], [], 1),
    "secret of anna": (8, [], [], 1),
    "secret of ana": (8, ["d7"], ["d7"], 1),
    "secret of anne": (4, [], [], 4),
    "not logged": (2, None, ["d8"], 2),
}


@pytest.fixture
def ubi(tmp_path: Path) -> list[Path]:
    queries, events = [], []
    for text, (searches, documents, clicked, clients) in ASKED.items():
        for number in range(searches):
            about = {"query_id": f"{text}{number}", "client_id": f"c{number % clients}"}
            shown = {} if documents is None else {"query_response_hit_ids": documents}
            queries.append({**about, "user_query": text, **shown})
            events += [
                {**about, "action_name": "click", "event_attributes": {"object": {"object_id": each}}}
                for each in (*clicked, *clicked)
            ]
            events.append({**about, "action_name": "impression"})
    files = [tmp_path / "ubi_queries.ndjson", tmp_path / "ubi_events.ndjson"]
    for file, lines in zip(files, (queries, events), strict=True):
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return files


def test_unanswered_searches_of_a_ubi_log(ubi: list[Path]) -> None:
    found = unanswered_queries(ubi)
    assert found == [
        UnansweredQuery("heat", 5, 0, None),
        UnansweredQuery("irnoman", 4, 4, "iron man", ("d1",)),
        UnansweredQuery("secret of anne", 4, 4, None),  # one person's query is suggested to nobody
        UnansweredQuery("iron mann", 3, 0, "iron man", ("d1",)),
    ]
    assert [each.query for each in unanswered_queries(ubi, limit=1)] == ["heat"]
