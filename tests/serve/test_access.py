"""Every endpoint with every kind of key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.serve.asgi import Client
from tests.serve.engine import InMemoryEngine

CANDIDATES = {"ids": ["a", "b"], "features": [[0.2, 1], [0.9, 1]]}
BODIES = {
    "POST /v1/rank": CANDIDATES,
    "POST /v1/weights": CANDIDATES,
    "POST /v1/explain": CANDIDATES,
    "POST /v1/search": {"query": "up"},
    "POST /v1/judgments": {"queries": [{"qid": "900", **CANDIDATES, "grades": [0, 1]}]},
    "POST /v1/judgments/withdraw": {"qid": "900"},
    "POST /v1/model/reload": {},
    "POST /v1/events": {"queries": [], "events": []},
    "POST /v1/rerank": {"query": "up", "documents": ["a", "b"]},
    "POST /v2/rerank": {"query": "up", "documents": ["a", "b"]},
}
# With keys:                 none  wrong  query  events  admin  | without keys
TABLE = {
    "POST /v1/rank": (401, 401, 200, 403, 200, 200),
    "POST /v1/weights": (401, 401, 200, 403, 200, 200),
    "POST /v1/explain": (401, 401, 200, 403, 200, 200),
    "POST /v1/search": (401, 401, 200, 403, 200, 200),
    "POST /v1/judgments": (401, 401, 403, 403, 200, 403),
    "POST /v1/judgments/withdraw": (401, 401, 403, 403, 200, 403),
    "POST /v1/events": (401, 401, 403, 200, 200, 403),
    "POST /v1/rerank": (401, 401, 409, 403, 409, 409),  # no memory
    "POST /v2/rerank": (401, 401, 409, 403, 409, 409),
    "POST /v1/model/reload": (401, 401, 403, 403, 200, 403),
    "GET /v1/model": (401, 401, 200, 403, 200, 200),
    "GET /metrics": (401, 401, 200, 403, 200, 200),
    "GET /healthz": (200, 200, 200, 200, 200, 200),
    "GET /readyz": (200, 200, 200, 200, 200, 200),
    "GET /openapi.json": (200, 200, 200, 200, 200, 200),
    "GET /docs": (200, 200, 200, 200, 200, 200),
}
HEADERS = {
    "none": lambda secrets: {},
    "wrong": lambda secrets: {"authorization": "Bearer kr_" + "A" * 43},
    "query": lambda secrets: {"authorization": f"Bearer {secrets['query']}"},
    "events": lambda secrets: {"authorization": f"Bearer {secrets['events']}"},
    "admin": lambda secrets: {"authorization": f"Bearer {secrets['admin']}"},
}


def status_of(client: Client, operation: str, headers: dict[str, str]) -> int:
    method, path = operation.split()
    if method == "POST":
        return client.post(path, BODIES[operation], **headers).status
    return client.send(method, path, b"", **headers).status


@pytest.mark.parametrize("kind", HEADERS)
def test_status_with_keys(make_client: Callable[..., Client], secrets: dict[str, str], kind: str):
    client = make_client(keys=True, engine=InMemoryEngine([0.3, 0.9]))
    column = list(HEADERS).index(kind)
    got = {operation: status_of(client, operation, HEADERS[kind](secrets)) for operation in TABLE}
    assert got == {operation: statuses[column] for operation, statuses in TABLE.items()}


def test_status_without_keys(make_client: Callable[..., Client]):
    client = make_client(engine=InMemoryEngine([0.3, 0.9]))
    got = {operation: status_of(client, operation, {}) for operation in TABLE}
    assert got == {operation: statuses[5] for operation, statuses in TABLE.items()}


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic {key}", "{key}", "Bearer {key}x", "Bearer  {digest}", "bearer\t{key}"]
)
def test_malformed_authorization_header_is_rejected(
    make_client: Callable[..., Client], secrets: dict[str, str], header: str
):
    from kinrank.serve._keys import digest_of

    client = make_client(keys=True)
    value = header.format(key=secrets["query"], digest=digest_of(secrets["query"]))
    answer = client.post("/v1/rank", CANDIDATES, authorization=value)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_table_lists_every_endpoint(make_client: Callable[..., Client]):
    starlette = make_client().app.app
    served = {f"{method} {route.path}" for route in starlette.routes for method in route.methods - {"HEAD"}}
    assert served == set(TABLE)
