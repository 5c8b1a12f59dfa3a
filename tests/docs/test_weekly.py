"""The weekly routine, typed as its page prints it: from a click log to a model in service."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import duckdb  # noqa: F401 - skips this file if it is not installed
import lightgbm  # noqa: F401 - likewise
import numpy as np
import pytest

from kinrank.registry import import_extra
from tests.docs.document_blocks import blocks_of, commands_of, environment
from tests.engines.stub import serve

PAGE = Path(__file__).parents[2] / "docs" / "weekly.md"
N_TEXTS, N_DOCUMENTS, START = 56, 10, datetime(2026, 10, 5, tzinfo=UTC)
FEATURES = """
[search]
match = "title"

[features]
engine_score = { match = "title" }
body = { match = "body" }
votes = { field = "votes" }
"""


def text_of(query: int) -> str:
    return f"{['red', 'blue', 'old', 'fast', 'small'][query % 5]} {['car', 'boat', 'house'][query // 5 % 3]} no{query}"


def documents_of(text: str) -> list[str]:
    return [f"{text.rsplit('no', 1)[1]}-{number}" for number in range(N_DOCUMENTS)]


def scores_of(document: str) -> dict[str, float]:
    """Return the features of a document; the body score tells how good it is, the engine's own hardly does."""
    rng = np.random.default_rng([int(part) for part in document.split("-")])
    good = rng.random()
    noise = rng.random(2)
    return {"engine_score": 3 + noise[0], "body": 1 + good + 0.2 * noise[1], "votes": float(rng.integers(100))}


def texts_in(body: Any) -> Iterator[str]:
    """Yield the query texts in a request."""
    if isinstance(body, dict):
        for name, value in body.items():
            if name in ("title", "body"):
                yield value["query"] if isinstance(value, dict) else value
            else:
                yield from texts_in(value)
    elif isinstance(body, list):
        for value in body:
            yield from texts_in(value)


class Shop(BaseHTTPRequestHandler):
    """Answers searches and logs features as Elasticsearch does."""

    protocol_version = "HTTP/1.1"

    def do_any(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or "{}")
        answer = json.dumps(self._answer(body)).encode()
        self.send_response(200)
        for name, value in {"content-type": "application/json", "x-elastic-product": "Elasticsearch"}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST = do_any  # noqa: N815

    def log_message(self, *_: Any) -> None:
        pass

    def _answer(self, body: dict[str, Any]) -> dict[str, Any]:
        if "_field_caps" in self.path:
            fields = {"title": "text", "body": "text", "votes": "long"}
            return {
                "fields": {
                    name: {kind: {"type": kind, "searchable": True, "aggregatable": kind == "long"}}
                    for name, kind in fields.items()
                }
            }
        if "_settings" in self.path:
            return {"shop": {"settings": {"index": {"uuid": "u1"}}}}
        if "_mapping" in self.path:
            return {"shop": {"mappings": {}}}
        documents = sorted(documents_of(next(texts_in(body))), key=lambda each: -scores_of(each)["engine_score"])
        hits = [
            {
                "_index": "shop",
                "_id": each,
                "_score": scores_of(each)["engine_score"],
                "fields": {"votes": [scores_of(each)["votes"]]},
                "matched_queries": {name: scores_of(each)[name] for name in ("engine_score", "body")},
            }
            for each in documents
        ]
        total = {"value": len(hits), "relation": "eq"}
        return {
            "timed_out": False,
            "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
            "hits": {"total": total, "hits": hits},
        }


def write_log(folder: Path, first: int, days: int, seed: int) -> None:
    """Write the queries and events of some days; a query is asked from the day on that its number says."""
    rng = np.random.default_rng(seed)
    queries, events = [], []
    for day in range(first, first + days):
        for query in range(N_TEXTS):
            if query % 14 > day:
                continue
            for _ in range(12):
                text, number, when = (
                    text_of(query),
                    len(queries),
                    START + timedelta(days=day, seconds=len(queries) % 80_000),
                )
                score = {each: scores_of(each) for each in documents_of(text)}
                order = sorted(score, key=lambda each: -score[each]["engine_score"] + rng.normal() * 0.3)
                stamp = when.isoformat()
                client = f"c{rng.integers(200)}"
                queries.append(
                    {"user_query": text, "query_id": f"{seed}-{number}", "client_id": client, "timestamp": stamp,
                     "query_response_hit_ids": order}
                )  # fmt: skip
                for rank, document in enumerate(order[:8]):
                    seen = rng.random() < 1 / (1 + rank) ** 0.7
                    if seen and rng.random() < score[document]["body"] - 1:
                        attributes = {"object": {"object_id": document}, "position": {"ordinal": rank + 1}}
                        events.append(
                            {"action_name": "click", "query_id": f"{seed}-{number}", "client_id": client,
                             "timestamp": stamp, "event_attributes": attributes}
                        )  # fmt: skip
    for name, lines in (("queries", queries), ("events", events)):
        (folder / f"ubi_{name}.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_lists(folder: Path) -> None:
    rng = np.random.default_rng(3)
    rows = [
        f"boat,s{number},d{rank},{rank},{int(rank == 1 and rng.random() < chosen)},{version}"
        for number in range(800)
        for version, chosen in [(("old", 0.3), ("new", 0.7))[number % 2]]
        for rank in (1, 2)
    ]
    (folder / "lists.csv").write_text("\n".join(["query,session,document,rank,clicked,version", *rows]))


@pytest.fixture
def shop() -> Iterator[str]:
    import_extra("elasticsearch", "engines")
    with serve(Shop) as address:
        yield f"elasticsearch+{address}/shop"


def run(command: str, folder: Path, programs: Path) -> str:
    """Run a command as a user would; return what it printed."""
    env = environment(programs)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command], cwd=folder, env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def printed_commands() -> list[str]:
    """Return the commands of the page, in order."""
    text = PAGE.read_text().replace("<!-- not run -->", "")
    blocks = [block for block in blocks_of(text) if block.language == "console"]
    return [command for block in blocks for command, _ in commands_of(block.source)]


@pytest.mark.slow
def test_the_weekly_routine_runs_as_printed(tmp_path: Path, shop: str, warm: Path) -> None:
    commands = printed_commands()
    assert len(commands) >= 9
    (tmp_path / "features.toml").write_text(FEATURES)
    ours = {
        "opensearch+http://localhost:9200/shop": shop,
        "s3://bucket/models": "models",
        "s3://bucket/canary": "canary",
    }

    def typed(command: str) -> str:
        for shown, here in ours.items():
            command = command.replace(shown, here)
        return run(command, tmp_path, warm)

    # The week before: the same commands made the model that is in service now, version 2.
    write_log(tmp_path, 0, 7, seed=1)
    clicks, log = (next(each for each in commands if each.startswith(f"kinrank {verb}")) for verb in ("clicks", "log"))
    typed(clicks)
    typed(log)
    typed("kinrank train week.parquet --model current")
    typed("kinrank train week.parquet --ranker single --model older")
    for model in ("older", "current"):
        typed(f"kinrank admin models s3://bucket/models --publish {model}")
    (tmp_path / "week.parquet").unlink()
    # This week.
    write_log(tmp_path, 7, 7, seed=2)
    write_lists(tmp_path)
    said = {command: typed(command) for command in commands}
    [split] = [text for command, text in said.items() if " split " in command]
    assert "train.parquet" in split
    [compared] = [text for command, text in said.items() if " compare " in command]
    assert "./current" in compared
    assert "./model" in compared
    [chosen] = [text for command, text in said.items() if "--compare version" in command]
    assert "old is worse in clicks per search" in chosen
    rows = json.loads(run("kinrank admin models models --json", tmp_path, warm))
    assert [row["in_use"] for row in rows] == [False, False, True]
