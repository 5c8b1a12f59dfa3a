from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kinrank.engines import lucene
from kinrank.engines._logger import IndexDownload
from kinrank.engines.base import RetryingPool
from kinrank.errors import EngineBusyError, EngineRefusedError, JobError, ParameterError
from tests.engines.conftest import OpenEngine
from tests.engines.fault_proxy import faulty_proxy
from tests.engines.servers import ADDRESSES
from tests.engines.toy import ToyEngine
from tests.processes import PATIENCE

DOCUMENTS = [{"timestamp": f"2026-10-{day:02}T0{hour}:00:00Z", "n": hour} for day in (1, 2, 4) for hour in range(3)]


class ListedEngine(ToyEngine):
    """An engine that lists documents, and fails on one day until it is repaired."""

    def __init__(self, broken: str = "") -> None:
        super().__init__()
        self.broken = broken
        self.days: list[str] = []

    def field_bounds(self, field: str) -> tuple[float, float] | None:
        times = [datetime.fromisoformat(document[field]).timestamp() * 1000 for document in DOCUMENTS]
        return min(times), max(times)

    def scan(self, query: Any, sort: str) -> Iterator[list[dict[str, Any]]]:
        if "range" not in query:
            yield [{"n": "without a time"}]
            return
        day = query["range"][sort]["gte"]
        self.days.append(day)
        if day == self.broken:
            raise EngineBusyError("too many requests")
        yield [document for document in DOCUMENTS if document["timestamp"].startswith(day)]


def download(engine: ListedEngine, folder: Path, since: str | None = None) -> list[Path]:
    return IndexDownload(engine, folder, since).write(
        RetryingPool(1, retry_for=0.01, first_pause=0.001), lambda _: None
    )


def lines(files: list[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_an_interrupted_download_resumes(tmp_path: Path):
    with pytest.raises(EngineBusyError, match="too many requests"):
        download(ListedEngine(broken="2026-10-04"), tmp_path / "parts")
    engine = ListedEngine()
    files = download(engine, tmp_path / "parts")
    assert engine.days == ["2026-10-04"]
    assert lines(files) == [*DOCUMENTS, {"n": "without a time"}]
    assert [file.stem for file in files] == ["2026-10-01", "2026-10-02", "2026-10-03", "2026-10-04", "no-time"]


def test_another_download_is_refused(tmp_path: Path):
    download(ListedEngine(), tmp_path / "parts", "2026-10-02")
    assert len(lines(sorted((tmp_path / "parts").glob("*.ndjson")))) == 6
    with pytest.raises(JobError, match=r"belongs to another download of this index .different since"):
        download(ListedEngine(), tmp_path / "parts")
    with pytest.raises(ParameterError, match="is not a date"):
        IndexDownload(ListedEngine(), tmp_path / "parts", "yesterday")
    with pytest.raises(EngineRefusedError, match="cannot list its documents"):
        ToyEngine().scan({}, "timestamp")


def ubi_documents(n_queries: int) -> tuple[list[tuple[str, dict[str, Any]]], list[tuple[str, dict[str, Any]]]]:
    """Return UBI queries over ten days whose results change, and clicks on some of them."""
    queries, events = [], []
    for number in range(n_queries):
        time = f"2026-10-{number % 10 + 1:02}T12:00:{number % 60:02}Z"
        hits = [f"d{(place + number // 7) % 5}" for place in range(5)]
        query = {"user_query": f"query {number % 20}", "query_id": f"q{number}", "client_id": f"c{number}"}
        queries.append((f"q{number}", {**query, "timestamp": time, "query_response_hit_ids": hits}))
        clicked = {"object": {"object_id": hits[number % 3]}, "position": {"ordinal": number % 3 + 1}}
        event = {"action_name": "click", "query_id": f"q{number}", "timestamp": time, "event_attributes": clicked}
        events.append((f"e{number}", event))
    return queries, events


MAPPINGS = {
    "mappings": {
        "properties": {
            "timestamp": {"type": "date"},
            "query_attributes": {"type": "object", "enabled": False},
            "event_attributes": {"type": "object", "enabled": False},
        }
    }
}


@pytest.mark.engine
def test_ubi_indexes_are_read_killed_and_resumed(
    engine_name: str, open_engine: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    n_queries = int(os.environ.get("KINRANK_UBI_QUERIES", "1000"))
    for index, documents in zip(("ubi_queries", "ubi_events"), ubi_documents(n_queries), strict=True):
        open_engine(engine_name, None, index).index(documents, settings=MAPPINGS)
    address = os.environ.get(f"KINRANK_{engine_name.upper()}", ADDRESSES[engine_name])
    command = [Path(sys.executable).parent / "kinrank", "clicks", address, "--model", "none", "--out"]
    subprocess.run([*command, tmp_path / "whole.parquet"], check=True, capture_output=True)
    parts = tmp_path / "killed.parquet.ubi_queries"
    killed, held = threading.Event(), threading.Event()

    def after_two_parts_wait(_: int) -> threading.Event | None:
        if len(list(parts.glob("*.ndjson"))) < 2:
            return None
        held.set()
        return killed

    host, _, port = address.partition("://")[2].rpartition(":")
    with faulty_proxy(f"http://{host}:{port}", after_two_parts_wait) as url:
        there = f"{engine_name}+{url}"
        process = subprocess.Popen([*command[:2], there, *command[3:], tmp_path / "killed.parquet"])
        assert held.wait(PATIENCE)
        process.kill()
        process.wait()
        killed.set()
    assert not (tmp_path / "killed.parquet").exists()
    assert list(parts.glob("*.ndjson"))
    subprocess.run([*command, tmp_path / "killed.parquet"], check=True, capture_output=True)
    assert (tmp_path / "killed.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not parts.exists()


@pytest.mark.engine
def test_a_scan_reads_every_document_once(engine_name: str, open_engine: OpenEngine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lucene, "DOCUMENTS_PER_PAGE", 7)
    engine = open_engine(engine_name, None)
    same_time = [(f"d{n}", {"timestamp": "2026-10-01T00:00:00Z", "n": n}) for n in range(50)]
    engine.index(same_time, settings=MAPPINGS)
    pages = list(engine.scan({"match_all": {}}, "timestamp"))
    assert max(map(len, pages)) == 7
    assert sorted(document["n"] for page in pages for document in page) == list(range(50))
    assert engine.field_bounds("timestamp") == (1790812800000.0, 1790812800000.0)
