"""Faults under load: no request fails other than with a documented 503."""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kinrank import KnnRanker, QuerySet
from kinrank.folder import MANIFEST
from kinrank.serve._keys import Role, add_key
from tests.processes import PATIENCE, wait_until
from tests.serve.asgi import Client  # noqa: F401 - these tests need the extra
from tests.serve.databases import sqlite_address, stored_queries
from tests.serve.servers import Load, Server, one_thread, serving

pytestmark = [pytest.mark.slow, pytest.mark.alone]

PATIENT = ("--deadline", "60000", "--set", "drain_seconds=0.3")


def check(load: Load, statuses: set[int] | None = None) -> None:
    assert load.lost == []
    assert load.wrong == []
    assert set(load.statuses) <= (statuses or {200}), load.statuses


@pytest.fixture(scope="module")
def place(camps: QuerySet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults")
    KnnRanker(5).fit(camps).save(folder / "model", examples=camps[:5])
    for role in Role:
        (folder / f"{role}.key").write_text(add_key(folder / "keys", role.value, role))
    return folder


@pytest.fixture(scope="module")
def admin(place: Path) -> str:
    return (place / "admin.key").read_text()


@pytest.fixture(scope="module")
def query(place: Path) -> str:
    return (place / "query.key").read_text()


@pytest.fixture(scope="module")
def two_workers(place: Path) -> Iterator[Server]:
    args = [str(place / "model"), "--keys", str(place / "keys"), *PATIENT, "--judgments", sqlite_address(place)]
    log, env = place / "log", one_thread()
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        serving(log, *args, listener=listener, env=env) as first,
        serving(log, *args, listener=listener, env=env) as second,
    ):
        first.peers.append(second)
        first.wait_until(lambda: len(first.model_events()) == 2)
        yield first


def test_fifty_model_swaps_under_load(two_workers: Server, place: Path, camps: QuerySet, query: str, admin: str):
    rankers = [KnnRanker(k).fit(camps) for k in (5, 7)]
    versions = set()
    with Load(lambda: two_workers.port, key=query) as load:
        for turn in range(50):
            rankers[turn % 2].save(place / "model", examples=camps[:5])
            status, body = two_workers.request("POST", "/v1/model/reload", {}, admin)
            assert status == 200, body
            versions.add(body["version"])
        load.wait_for(50)
    check(load)
    assert set(load.fallbacks) == {None}
    assert len(versions) == 2


def test_damaged_model_is_refused_under_load(two_workers: Server, place: Path, query: str, admin: str):
    version = hashlib.sha256((place / "model" / MANIFEST).read_bytes()).hexdigest()[:12]

    def both_workers(**expected: str) -> bool:
        events = two_workers.model_events().values()
        return len(events) == 2 and all(expected.items() <= event.items() for event in events)

    two_workers.wait_until(lambda: both_workers(what="loaded", version=version))
    good, bad = place / "good", place / "bad"
    shutil.copytree(place / "model", bad)
    [file] = bad.rglob("memory.gram.npy")
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    file.write_bytes(raw)
    with Load(lambda: two_workers.port, key=query) as load:
        load.wait_for(20)
        (place / "model").rename(good)
        bad.rename(place / "model")
        status, body = two_workers.request("POST", "/v1/model/reload", {}, admin)
        assert (status, body["error"]["code"]) == (409, "refused-model")
        two_workers.wait_until(lambda: both_workers(what="refused"))
        load.wait_for(50)
        for _ in range(10):
            _, body = two_workers.request("GET", "/v1/model", key=query)
            assert body["models"]["default"]["loaded"]["version"].partition("+")[0] == version
            assert "has changed since it was written" in body["models"]["default"]["refused"]
        (place / "model").rename(place / "refused")
        good.rename(place / "model")
        load.wait_for(50)
    check(load)
    assert set(load.fallbacks) == {None}


def test_every_worker_learns_from_judgments(two_workers: Server, query: str, admin: str):
    body = {"queries": [{"qid": "7001", "ids": ["x", "y"], "features": [[0.1, 1], [0.9, 1]], "grades": [0, 1]}]}
    assert two_workers.request("POST", "/v1/judgments", body, admin) == (200, {"kept": 1})

    def learned() -> bool:
        responses = [two_workers.request("GET", "/v1/model", key=query)[1] for _ in range(8)]
        return all(each["models"]["default"]["loaded"]["judgments_learned"] == 1 for each in responses)

    two_workers.wait_until(learned)


def test_killed_process_leaves_the_others_serving(two_workers: Server, query: str):
    (second,) = two_workers.peers
    with Load(lambda: two_workers.port, key=query) as load:
        load.wait_for(50)
        second.process.kill()
        second.process.wait(PATIENCE)
        load.wait_for(50)
    check(load)
    assert two_workers.workers == [two_workers.process.pid]


def test_drain_loses_no_request(place: Path):
    args = [str(place / "model"), *PATIENT]
    with (
        serving(place / "a", *args, "--set", f"drain_seconds={10 * PATIENCE:g}", env=one_thread()) as first,
        serving(place / "b", *args, env=one_thread()) as second,
    ):
        ready = [first.port, second.port]
        turn = iter(range(10**9))
        asked: Counter[int] = Counter()

        def port() -> int:
            asked[threading.get_ident()] += 1
            return ready[next(turn) % len(ready)]

        with Load(port) as load:
            load.wait_for(50)
            first.process.send_signal(signal.SIGTERM)
            first.wait_until(lambda: first.request("GET", "/readyz")[0] != 200)  # as a load balancer does
            ready.remove(first.port)
            before = dict(asked)
            # Each client has the response to the last request that it sent to this one.
            wait_until(lambda: all(asked[client] > count for client, count in before.items()))
            first.process.send_signal(signal.SIGTERM)
            first.process.wait(PATIENCE)
            load.wait_for(50)
        check(load)
        assert load.retries == 0
    assert '"event":"draining"' in (place / "a").read_text()


def test_full_disk_under_load(place: Path, query: str, admin: str, tmp_path: Path):
    # Maximum file size of the process: beyond it, writes fail as on a full disk.
    limit = 1 << 20
    args = [str(place / "model"), "--keys", str(place / "keys"), "--judgments", sqlite_address(tmp_path), *PATIENT]

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    rng = np.random.default_rng(0)
    kept = []
    with serving(tmp_path / "log", *args, env=one_thread(), preexec_fn=limited) as server:
        with Load(lambda: server.port, key=query) as load:
            for turn in range(200):
                ids = [f"{turn}-{i}" for i in range(500)]
                values = rng.random(500)  # higher is better, as for all queries of this camp
                rows, grades = np.column_stack([values, np.ones(500)]).tolist(), np.floor(3 * values).tolist()
                judged = {"qid": str(8000 + turn), "ids": ids, "features": rows, "grades": grades}
                status, body = server.request("POST", "/v1/judgments", {"queries": [judged]}, admin)
                if status != 200:
                    break
                kept.append(judged["qid"])
            assert (status, body["error"]["code"]) == (503, "not-kept")
            load.wait_for(50)
        check(load)
    assert stored_queries(sqlite_address(tmp_path), "default") == kept
    with serving(tmp_path / "log", *args, env=one_thread()) as restarted:
        loaded = restarted.request("GET", "/v1/model", key=query)[1]["models"]["default"]["loaded"]
        assert loaded["judgments_learned"] == len(kept)


def test_clock_jumps_have_no_effect(place: Path, tmp_path: Path):
    library = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if library is None:
        pytest.fail("libfaketime is not installed: apt-get install libfaketime")
    clock = tmp_path / "clock"
    clock.write_text("+0")
    fake = {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": "1",  # without a cache, the file is read at every call
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }

    def logged_days() -> set[str]:
        lines = (tmp_path / "log").read_text().splitlines()
        return {json.loads(line)["time"][:10] for line in lines if '"event":"request"' in line}

    with serving(tmp_path / "log", str(place / "model"), *PATIENT, env={**one_thread(), **fake}) as server:
        with Load(lambda: server.port) as load:
            for n_days, jump in ((2, "+1d"), (3, "-30d"), (3, "+0")):
                load.wait_for(30)
                clock.write_text(jump)
                server.wait_until(lambda n_days=n_days: len(logged_days()) >= n_days)  # the clock did jump
                load.wait_for(30)
        check(load)
        assert set(load.fallbacks) == {None}
