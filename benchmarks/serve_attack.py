"""No sequence of requests with a valid query key lifts a process above twice its idle size plus 300 MB.

60 clients send generated requests for ten minutes: rankings, weights, explanations and examples; bodies of a few bytes
to 8 MB, in one piece, in chunks or slower than they may be; valid, invalid, with too many rows, columns or names, and
with revisions that never come; some clients leave without reading. The bound is on the most memory that the process
has ever held. The service must respond to its health check all the time, and rank afterwards as before.
"""

from __future__ import annotations

import http.client
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.common import log_progress, memory_mb
from benchmarks.serve_load import serving
from kinrank import KnnRanker
from kinrank.datasets import make_two_camps
from kinrank.serve._keys import Role, add_key

OPTIONS = {"seconds": ("600", "120", "20")}
CLIENTS, ALLOWED_MB, HEALTH_SECONDS = 60, 300, 5.0
PATHS = ("/v1/rank", "/v1/explain", "/v1/weights", "/v1/search", "/v1/model")
UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}


def run(seconds: str) -> dict[str, object]:
    """Attack a service and return the memory that it held."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        camps = make_two_camps(n_queries=2000, n_docs=20, seed=0)
        KnnRanker(50).fit(camps).save(place / "model", examples=camps[:5])
        key = add_key(place / "keys", "web", Role.QUERY)
        with serving(place, "model", "--keys", str(place / "keys")) as server:
            for _ in range(50):
                send(server.port, key, "/v1/rank", json.dumps(UP).encode())
            return attack(server.port, server.pid, key, int(seconds))


def attack(port: int, pid: int, key: str, seconds: int) -> dict[str, object]:
    """Send generated requests from many clients, and watch the process."""
    idle = memory_mb("VmRSS", pid)
    statuses: Counter[str] = Counter()
    end = time.monotonic() + seconds

    def client(seed: int) -> None:
        generator = random.Random(seed)
        while time.monotonic() < end:
            statuses[attack_once(port, key, generator)] += 1

    threads = [threading.Thread(target=client, args=(seed,)) for seed in range(CLIENTS)]
    for thread in threads:
        thread.start()
    slowest, reported = 0.0, time.monotonic()
    while time.monotonic() < end:
        start = time.monotonic()
        assert send(port, key, "/healthz", None) == "200"
        slowest = max(slowest, time.monotonic() - start)
        time.sleep(0.5)
        if time.monotonic() > reported + 30:
            reported = time.monotonic()
            log_progress(f"{sum(statuses.values())} requests, {memory_mb('VmHWM', pid):.0f} MB at most")
    for thread in threads:
        thread.join()
    after = send(port, key, "/v1/rank", json.dumps(UP).encode())
    most = memory_mb("VmHWM", pid)
    bound = 2 * idle + ALLOWED_MB
    return {
        "seconds": seconds,
        "requests": sum(statuses.values()),
        "responses": dict(statuses.most_common()),
        "idle MB": round(idle),
        "most MB": round(most),
        "bound MB": round(bound),
        "slowest health check s": round(slowest, 2),
        "holds": most <= bound and slowest < HEALTH_SECONDS and after == "200",
    }


def attack_once(port: int, key: str, generator: random.Random) -> str:
    """Send one generated request."""
    path = generator.choice(PATHS)
    if path == "/v1/model":
        return send(port, key, path, None)
    body = generated_body(generator)
    manner = generator.choice(["whole", "whole", "chunks", "slow", "unread"])
    headers = {"X-Kinrank-Revision": "999999999"} if generator.random() < 0.1 else {}
    return send(port, key, path, body, manner, headers)


def generated_body(generator: random.Random) -> bytes:
    """Return a body: valid, too large, or nonsense."""
    kind = generator.choice(["valid", "rows", "columns", "names", "text", "nonsense", "deep"])
    if kind == "nonsense":
        return generator.randbytes(generator.choice([10, 1000, 1 << 20]))
    if kind == "deep":
        return b"[" * generator.choice([100, 100_000])
    rows = {"rows": generator.choice([1000, 20_000]), "columns": 100}.get(kind, 10)
    columns = {"columns": generator.choice([100, 4000])}.get(kind, 2)
    features = [[0.123456789] * columns] * rows
    body: dict[str, object] = {"ids": [str(row) for row in range(rows)], "features": features}
    if kind == "names":
        body["feature_names"] = ["x" * generator.choice([10, 1 << 20])] * 2
    if kind == "text":
        body["text"] = "word " * generator.choice([10, 1 << 20])
    return json.dumps(body).encode()


def send(
    port: int,
    key: str,
    path: str,
    body: bytes | None,
    manner: str = "whole",
    headers: dict[str, str] | None = None,
) -> str:
    """Send a request, and return the status of its response or how it ended."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", **(headers or {})}
    try:
        content = body if body is None or manner in ("whole", "unread") else pieces(body, manner)
        connection.request("GET" if body is None else "POST", path, content, given)
        if manner == "unread":
            return "left"
        response = connection.getresponse()
        response.read()
        return str(response.status)
    except (OSError, http.client.HTTPException):
        return "closed"
    finally:
        with suppress(OSError):
            connection.close()


def pieces(body: bytes, manner: str) -> Iterator[bytes]:
    """Yield a body in small pieces, or in a few that take longer than they may."""
    size = max(64, len(body) // (200 if manner == "chunks" else 8))
    for first in range(0, len(body), size):
        yield body[first : first + size]
        if manner == "slow":
            time.sleep(1.0)
