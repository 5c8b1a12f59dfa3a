"""Every endpoint times every kind of key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.serve.asgi import Client
from tests.serve.engine import ShelfEngine

CANDIDATES = {"ids": ["a", "b"], "features": [[0.2, 1], [0.9, 1]]}
BODIES = {
    "POST /v1/rank": CANDIDATES,
    "POST /v1/weights": CANDIDATES,
    "POST /v1/search": {"query": "up"},
    "POST /v1/judgments": {"queries": [{"qid": "900", **CANDIDATES, "grades": [0, 1]}]},
    "POST /v1/model/reload": {},
}
# With keys:                 none  wrong  query  admin  | without keys
TABLE = {
    "POST /v1/rank": (401, 401, 200, 403, 200),
    "POST /v1/weights": (401, 401, 200, 403, 200),
    "POST /v1/search": (401, 401, 200, 403, 200),
    "POST /v1/judgments": (401, 401, 403, 200, 403),
    "POST /v1/model/reload": (401, 401, 403, 200, 403),
    "GET /v1/model": (401, 401, 200, 200, 200),
    "GET /metrics": (401, 401, 200, 200, 200),
    "GET /healthz": (200, 200, 200, 200, 200),
    "GET /readyz": (200, 200, 200, 200, 200),
    "GET /openapi.json": (200, 200, 200, 200, 200),
    "GET /": (200, 200, 200, 200, 200),
}
SHOWN = {
    "nothing": lambda secrets: {},
    "wrong": lambda secrets: {"authorization": "Bearer kr_" + "A" * 43},
    "query": lambda secrets: {"authorization": f"Bearer {secrets['query']}"},
    "admin": lambda secrets: {"authorization": f"Bearer {secrets['admin']}"},
}


def ask(client: Client, what: str, headers: dict[str, str]) -> int:
    method, path = what.split()
    return client.post(path, BODIES[what], **headers).status if method == "POST" else client.get(path, **headers).status


@pytest.mark.parametrize("kind", SHOWN)
def test_with_keys(make_client: Callable[..., Client], secrets: dict[str, str], kind: str):
    client = make_client(keys=True, engine=ShelfEngine([0.3, 0.9]))
    column = list(SHOWN).index(kind)
    got = {what: ask(client, what, SHOWN[kind](secrets)) for what in TABLE}
    assert got == {what: statuses[column] for what, statuses in TABLE.items()}


def test_without_keys(make_client: Callable[..., Client]):
    client = make_client(engine=ShelfEngine([0.3, 0.9]))
    assert {what: ask(client, what, {}) for what in TABLE} == {what: row[4] for what, row in TABLE.items()}


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic {key}", "{key}", "Bearer {key}x", "Bearer  {digest}", "bearer\t{key}"]
)
def test_a_key_must_be_shown_as_one(make_client: Callable[..., Client], secrets: dict[str, str], header: str):
    from kinrank.serve.keys import digest_of

    client = make_client(keys=True)
    shown = header.format(key=secrets["query"], digest=digest_of(secrets["query"]))
    answer = client.post("/v1/rank", CANDIDATES, authorization=shown)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_no_endpoint_is_missing_from_the_table(make_client: Callable[..., Client]):
    app = make_client().app._app
    there = {f"{method} {route.path}" for route in app.routes for method in route.methods - {"HEAD"}}
    assert there == set(TABLE)
