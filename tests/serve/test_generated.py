"""Requests generated from the OpenAPI document, and valid requests mutated at random."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import numpy as np
import pytest

from kinrank.serve import Service, Settings
from kinrank.serve._keys import Role, add_key
from tests.conftest import THOROUGH
from tests.serve.asgi import Client
from tests.serve.databases import sqlite_address, stored_queries
from tests.serve.engine import InMemoryEngine
from tests.serve.servers import one_thread, serving

pytestmark = pytest.mark.slow

CASES = 10_000 if THOROUGH else 300  # requests of schemathesis: 10,000 take five minutes
MUTANTS = 24 * CASES  # a multiple of the senders
ADMIN = ("/v1/judgments", "/v1/judgments/withdraw", "/v1/model/reload")
STATUSES = {200, 400, 401, 404, 405, 408, 409, 413, 415, 422, 502, 503}

# Number of generated requests by path, those that take longest in all first.
GENERATED = {
    "/v1/model/reload": (Role.ADMIN, 5000),
    "/v1/judgments": (Role.ADMIN, 300),
    "/v1/rank": (Role.QUERY, 700),
    "/v1/weights": (Role.QUERY, 700),
    "/v1/search": (Role.QUERY, 2300),
    "/v1/explain": (Role.QUERY, 300),
    "/v1/events": (Role.EVENTS, 300),
    "/v1/model": (Role.QUERY, 10),
}
# Generated revisions are never reached: every request would wait for seconds and get 503.
CONFIG = 'parameters = { "header.x-kinrank-revision" = "0" }'

# Valid bodies to mutate.
_ROWS = [[0.2, 1.0], [0.9, 1.0], [0.5, 1.0]]
_RANK = {"ids": ["a", "b", "c"], "features": _ROWS}
SEEDS = [
    ("/v1/rank", _RANK),
    ("/v1/rank", {**_RANK, "feature_names": ["value", "camp"], "vector": [0.5, 1.5], "columns": {"words": 2}}),
    ("/v1/rank", {**_RANK, "pinned": ["a"]}),
    ("/v1/rank", {**_RANK, "arm": "a"}),
    ("/v1/weights", _RANK),
    ("/v1/explain", _RANK),
    ("/v1/weights", {"query": "up", "size": 5}),
    ("/v1/search", {"query": "up", "size": 5, "window": 10, "explain": True}),
    ("/v1/judgments/withdraw", {"qid": "900", "source": "panel"}),
]
_EVENTS = {
    "queries": [{"query_id": "l1", "user_query": "up", "client_id": "c1", "query_response_hit_ids": ["a", 7]}],
    "events": [{"action_name": "click", "query_id": "l1", "event_attributes": {"object": {"object_id": "a"}}}],
}
_JUDGED = {**_RANK, "grades": [0, 2, 1]}
SEEDS += [("/v1/judgments", {"queries": [{"qid": qid, **_JUDGED}], "source": "panel"}) for qid in ("900", "901", "902")]
SEEDS += [("/v1/events", _EVENTS), ("/v1/events", [*_EVENTS["queries"], *_EVENTS["events"]])]
_TOKENS = [b"null", b"-1", b"1e999", b"NaN", b"{}", b"[]", b'""', b"\x00", b"\xff", b'"' * 3, b"9" * 400, b"[" * 50]


def mutated(raw: bytes, rng: random.Random) -> bytes:
    """Change, drop, repeat or replace some bytes."""
    body = bytearray(raw)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(body) + 1)
        kind = rng.randrange(5)
        if kind == 0 and place < len(body):
            body[place] = rng.randrange(256)
        elif kind == 1:
            del body[place : place + rng.randint(1, 20)]
        elif kind == 2:
            body[place:place] = body[place : place + rng.randint(1, 40)]
        elif kind == 3:
            body[place : place + rng.randint(0, 6)] = rng.choice(_TOKENS)
        else:
            body[place:] = b""
    return bytes(body)


def test_mutated_bodies_get_a_documented_status(
    make_client: Callable[..., Client], secrets: dict[str, str], models: Path, tmp_path: Path
):
    client = make_client(
        settings=Settings(deadline=60.0, watch_interval=3600), keys=True, engine=InMemoryEngine([0.3, 0.9, 0.1])
    )
    packed = {**_RANK, "features": np.array(_ROWS, dtype="<f4").tobytes()}
    seeds = [(path, json.dumps(body).encode(), "application/json") for path, body in SEEDS]
    seeds.append(("/v1/rank", msgspec.msgpack.encode(packed), "application/msgpack"))
    rng = random.Random(0)
    statuses: Counter[int] = Counter()

    async def send_some(count: int) -> None:
        for _ in range(count):
            path, raw, kind = rng.choice(seeds)
            key = secrets["admin" if path in ADMIN else "events" if path == "/v1/events" else "query"]
            headers = {"content_type": kind, "authorization": f"Bearer {key}"}
            response = await client.request("POST", path, mutated(raw, rng), **headers)
            statuses[response.status] += 1

    async def send_all() -> None:
        await asyncio.gather(*(send_some(MUTANTS // 8) for _ in range(8)))

    client.runner.run(send_all())
    assert set(statuses) <= STATUSES, statuses
    assert statuses.total() == MUTANTS
    assert statuses[200] > MUTANTS // 100  # some mutants are valid
    assert statuses[422] > MUTANTS // 2
    page = client.get("/metrics", authorization=f"Bearer {secrets['query']}").body.decode()
    assert "kinrank_errors_total{" not in page
    assert 'reason="late"' not in page
    check_learned_after_restart(models, sqlite_address(tmp_path))


def check_learned_after_restart(models: Path, judgments: str) -> None:
    """Every stored judgment is learned by a service that starts with the same store."""
    kept = set(stored_queries(judgments, "knn"))
    assert len(kept) > 1  # some mutants of judgments are valid
    for _ in range(2):
        with Service({"knn": models / "knn"}, settings=Settings(deadline=60.0), judgments=judgments) as service:
            slot = service.slots["knn"]
            assert slot.refusal is None
            assert kept <= {str(qid) for qid in slot.current.ranker.qid_.tolist()}


@pytest.mark.alone  # two processes generate, one serves
def test_generated_requests_get_a_documented_status(models: Path, tmp_path: Path):
    keys = {role: add_key(tmp_path / "keys", role.value, role) for role in Role}
    args = [f"knn={models / 'knn'}", f"single={models / 'single'}", "--keys", str(tmp_path / "keys")]
    args += [
        "--judgments",
        sqlite_address(tmp_path),
        "--deadline",
        "60000",
        "--set",
        "in_flight=1000",
        "--set",
        "drain_seconds=0.1",
    ]
    with serving(tmp_path / "log", *args, env=one_thread()) as server:
        with ThreadPoolExecutor(2) as pool:  # generating takes most of the time, on one core each
            started = [
                pool.submit(run_schemathesis, server.port, keys[role], path, max(10, most * CASES // 10_000), tmp_path)
                for path, (role, most) in GENERATED.items()
            ]
            for done in started:
                done.result()
        assert server.request("POST", "/v1/rank", _RANK, keys[Role.QUERY])[1]["ids"] == ["b", "c", "a"]
    log = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    requests = [line for line in log if line["event"] == "request"]
    assert len(requests) >= CASES
    assert {line["status"] for line in requests} <= STATUSES
    assert "error" not in {line["event"] for line in log}


def run_schemathesis(port: int, key: str, path: str, most: int, folder: Path) -> None:
    command = [Path(sys.executable).parent / "schemathesis", "run", f"http://127.0.0.1:{port}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {key}", "--include-path", path, "--max-examples", str(most)]
    command += ["--checks", "not_a_server_error,response_schema_conformance,content_type_conformance", "--seed", "1"]
    command += ["--phases", "examples,coverage,fuzzing", "--suppress-health-check", "all", "--workers", "2"]
    command += ["--request-timeout", "60"]
    (folder / "schemathesis.toml").write_text(CONFIG)
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=3000)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
