"""The service over HTTP, called in this process."""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from kinrank.arrays import Float32
from kinrank.engines import Hits
from kinrank.errors import StaleReplicaError
from kinrank.serve import Service, Settings
from kinrank.serve._http import bodies
from kinrank.serve._http import endpoints as answers
from kinrank.serve._http.app import create_app
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.openapi import EXAMPLES
from kinrank.serve._search import Searcher
from tests.processes import PATIENCE, wait_until
from tests.serve.asgi import Client
from tests.serve.conftest import PATIENT, LogReader
from tests.serve.engine import InMemoryEngine

UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}
PACKED = "application/msgpack"


def packed(body: dict, **more: object) -> bytes:
    features = np.array(body["features"], dtype="<f4").tobytes()
    return msgspec.msgpack.encode({**body, "features": features, **more})


def test_rank(client: Client):
    answer = client.post("/v1/rank", UP)
    assert answer.status == 200
    assert answer.json["ids"] == ["b", "c", "a"]
    assert (answer.json["model"], answer.json["fallback"]) == ("knn", None)
    assert answer.json["scores"] == sorted(answer.json["scores"], reverse=True)


def test_json_and_messagepack_give_equal_responses(client: Client):
    plain = client.post("/v1/rank", UP).json
    answer = client.post("/v1/rank", packed(UP), content_type=PACKED, accept=PACKED)
    assert answer.headers["content-type"] == PACKED
    unpacked = msgspec.msgpack.decode(answer.body)
    assert unpacked.pop("query_id") != plain.pop("query_id")
    assert unpacked == plain
    again = client.post("/v1/rank", packed(UP), content_type=PACKED).json
    assert again == plain | {"query_id": again["query_id"]}


def test_header_selects_the_model(client: Client):
    assert client.post("/v1/rank", UP, x_kinrank_model="single").json["model"] == "single"
    unknown = client.post("/v1/rank", UP, x_kinrank_model="unknown")
    assert (unknown.status, unknown.json["ids"], unknown.json["fallback"]) == (200, UP["ids"], "no-model")


@pytest.mark.parametrize(
    ("features", "names", "reason"),
    [
        ([[0.2, None], [0.9, 1], [0.5, 1]], None, "not-finite"),
        ([[1], [2], [3]], None, "unknown-feature"),
        ([[1], [2], [3]], ["price"], "unknown-feature"),
        ([[1e9, 1], [2, 1], [3, 1]], None, "novel-query"),
    ],
)
def test_queries_that_cannot_be_ranked_stay_in_the_engines_order(client: Client, features, names, reason: str):
    answer = client.post("/v1/rank", {"ids": UP["ids"], "features": features, "feature_names": names})
    assert (answer.status, answer.json["ids"], answer.json["fallback"]) == (200, UP["ids"], reason)
    assert f'kinrank_fallbacks_total{{model="knn",reason="{reason}"}} 1.0' in client.get("/metrics").body.decode()


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("/v1/rank", b"{", 422, "invalid"),
        ("/v1/rank", b"[" * 100_000, 422, "invalid"),
        ("/v1/rank", b"\xff\xfe", 422, "invalid"),
        ("/v1/rank", b'{"ids":["a"],"features":[[NaN]]}', 422, "invalid"),
        ("/v1/rank", {"ids": ["a", "a"], "features": [[1, 1], [2, 1]]}, 422, "invalid"),
        ("/v1/rank", {"ids": ["a", "b"], "features": [[1, 1], [2]]}, 422, "invalid"),
        ("/v1/rank", {"ids": ["a"], "features": [[1, 1], [2, 1]]}, 422, "invalid"),
        ("/v1/rank", {"ids": [], "features": []}, 422, "invalid"),
        ("/v1/rank", {"ids": ["a"], "features": [["1", "2"]]}, 422, "invalid"),
        ("/v1/rank", {"ids": ["a"], "features": [[True, False]]}, 422, "invalid"),
        ("/v1/rank", {"ids": ["a"], "features": [[1e39, 0]]}, 422, "invalid"),
        ("/v1/rank", {"ids": ["x" * 513], "features": [[1, 1]]}, 422, "invalid"),
        ("/v1/rank", {"ids": [str(i) for i in range(1001)], "features": [[1, 1]] * 1001}, 422, "invalid"),
        ("/v1/rank", {**UP, "path": "/etc/passwd"}, 422, "invalid"),
        ("/v1/rank", {**UP, "feature_names": ["value", "value"]}, 422, "invalid"),
        ("/v1/rank", b" " * ((8 << 20) + 1), 413, "too-large"),
        ("/v1/weights", {"query": "up"}, 409, "no-engine"),
        ("/v1/search", {"query": "up"}, 409, "no-engine"),
        ("/v1/nothing", {}, 404, "http"),
        ("/healthz", {}, 405, "http"),
    ],
)
def test_invalid_request_is_an_error(client: Client, path: str, body, status: int, code: str):
    answer = client.post(path, body)
    assert (answer.status, answer.code) == (status, code)
    assert answer.json["error"]["message"]


@pytest.mark.parametrize(
    "raw",
    [
        b"\xc1",
        packed(UP)[:-3],
        msgspec.msgpack.encode({**UP, "features": b"12345"}),
        msgspec.msgpack.encode({**UP, "features": b""}),
        packed(UP, vector=b"123"),
        packed(UP, ids=["a"] * 3),
    ],
)
def test_invalid_messagepack_request_is_an_error(client: Client, raw: bytes):
    answer = client.post("/v1/rank", raw, content_type=PACKED)
    assert (answer.status, answer.code) == (422, "invalid")


@pytest.mark.parametrize("path", ["/v1/rank", "/v1/weights", "/v1/search", "/v1/judgments"])
def test_unsupported_media_type_is_rejected(make_client: Callable[..., Client], secrets: dict[str, str], path: str):
    client = make_client(keys=True, key=secrets["admin" if path in ("/v1/judgments", "/v1/model/reload") else "query"])
    kinds = ["text/csv", "text/plain", "application/x-www-form-urlencoded"]
    for kind in kinds if path == "/v1/rank" else [*kinds, PACKED]:
        answer = client.post(path, UP, content_type=kind)
        assert (answer.status, answer.code) == (415, "media-type")
    assert client.post(path, UP, content_type="application/json; charset=utf-8").status != 415


def test_request_must_name_one_host(client: Client):
    missing = client.get("/healthz", host="")
    assert (missing.status, missing.code) == (400, "host")
    twice = client.runner.run(client.request("GET", "/healthz", b"", host="a", Host="b"))
    assert (twice.status, twice.code) == (400, "host")


def test_body_that_does_not_end_is_rejected(make_client: Callable[..., Client]):
    client = make_client(settings=Settings(deadline=60.0, body_seconds=0.1))
    messages = [{"type": "http.request", "body": b'{"ids":', "more_body": True}]
    response = client.runner.run(client.request_messages("POST", "/v1/rank", messages))
    assert (response.status, response.code) == (408, "slow-body")


def test_deadline_starts_when_the_request_comes_in(make_client: Callable[..., Client]):
    client = make_client(settings=Settings(deadline=0.2))
    raw = json.dumps(UP).encode()

    def slow_body() -> Iterator[dict[str, Any]]:
        yield {"type": "http.request", "body": raw[:10], "more_body": True}
        time.sleep(0.3)
        yield {"type": "http.request", "body": raw[10:], "more_body": False}

    response = client.runner.run(client.request_messages("POST", "/v1/rank", slow_body()))
    assert (response.status, response.json["fallback"]) == (200, "late")


def test_large_bodies_are_parsed_in_another_thread(
    make_client: Callable[..., Client], secrets: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    client = make_client(keys=True, key=secrets["admin"])
    threads = []
    to_matrix = bodies.to_matrix

    def recording(*given: Any) -> Float32:
        threads.append(threading.current_thread())
        return to_matrix(*given)

    monkeypatch.setattr(bodies, "to_matrix", recording)
    judged = {"queries": [{"qid": 900, **UP, "grades": [0, 1, 2]}]}
    for path, body in {"/v1/rank": UP, "/v1/weights": UP, "/v1/explain": UP, "/v1/judgments": judged}.items():
        raw = json.dumps(body).encode()
        assert client.post(path, raw).status == 200
        assert client.post(path, raw + b" " * (1 << 20)).status == 200
    assert [thread is threading.main_thread() for thread in threads] == [True, False] * 4


@pytest.mark.parametrize(("n_rows", "pauses"), [(10, 0), (1_000, 1_000)])
def test_parsing_of_a_large_body_pauses_for_other_threads(n_rows: int, pauses: int, monkeypatch: pytest.MonkeyPatch):
    slept: list[float] = []
    monkeypatch.setattr("kinrank.serve._http.bodies.time.sleep", slept.append)
    rows = [msgspec.Raw(b"[%b]" % b",".join([b"0.25"] * 100))] * n_rows
    assert bodies.to_matrix(rows, bytes(500 * n_rows)).shape == (n_rows, 100)
    assert len(slept) == pauses


def test_request_that_would_only_wait_is_rejected_before_its_body_is_read(
    make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
):
    client = make_client()
    monkeypatch.setattr(Service, "is_overloaded", lambda service, model: model == "single")
    answer = client.runner.run(client.request_messages("POST", "/v1/rank", [], x_kinrank_model="single"))
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "overloaded", "1")
    assert client.post("/v1/rank", UP).json["fallback"] is None
    assert "kinrank_shed_total 1.0" in client.get("/metrics").body.decode()


def test_excess_requests_are_shed_but_health_checks_are_not(make_client: Callable[..., Client]):
    client = make_client(settings=Settings(deadline=60.0, in_flight=4))
    raw = json.dumps(UP).encode()
    answers = client.gather(
        *(client.request("POST", "/v1/rank", raw) for _ in range(12)), client.request("GET", "/healthz", b"")
    )
    by_status = {status: [a for a in answers if a.status == status] for status in (200, 503)}
    assert len(by_status[200]) == 5
    assert {(a.code, a.headers["retry-after"]) for a in by_status[503]} == {("overloaded", "1")}
    assert "kinrank_shed_total 8.0" in client.get("/metrics").body.decode()


def test_responses_have_a_request_id_and_requests_are_logged(
    make_client: Callable[..., Client], log: LogReader, secrets: dict[str, str]
):
    client = make_client(keys=True, key=secrets["query"])
    ranked = client.post("/v1/rank", UP, x_request_id="mine-1")
    assert ranked.headers["x-request-id"] == "mine-1"
    assert client.post("/v1/rank", UP, x_request_id='bad"id\n').headers["x-request-id"] != 'bad"id\n'
    client.post("/v1/rank", {"ids": ["secret-document"], "features": [[1, 1]]}, authorization="Bearer kr_wrong")
    requests = log.wait_for("request", 3)
    assert [line["status"] for line in requests] == [200, 200, 401]
    assert (requests[0]["request_id"], requests[0]["key"], requests[0]["model"]) == ("mine-1", "query", "knn")
    assert (requests[0]["version"], requests[0]["pid"]) == (ranked.json["version"], os.getpid())
    assert (requests[0]["batch"], requests[0]["in_flight"]) == (1, 1)
    assert all(requests[0][f"{stage}_ms"] >= 0 for stage in ("parse", "wait", "rank"))
    for word in (secrets["query"], "kr_wrong", "secret-document"):
        assert word not in log.text


def test_metrics_include_stages_and_novelty(client: Client):
    client.post("/v1/rank", UP)
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").body.decode())}
    stages = {sample.labels["stage"] for sample in families["kinrank_stage_seconds"].samples}
    assert {"parse", "wait", "rank"} <= stages
    counts = [s.value for s in families["kinrank_query_novelty"].samples if s.name.endswith("_count")]
    assert counts == [1.0]
    assert "kinrank_model_events" in families


def test_metrics_include_the_state_of_models_and_of_the_process(
    make_client: Callable[..., Client], secrets: dict[str, str]
):
    client = make_client(keys=True, key=secrets["admin"])
    body = {"queries": [{"qid": "900", **UP, "grades": [0, 2, 1]}]}
    revision = int(client.post("/v1/judgments", body).headers["x-kinrank-revision"])

    def values() -> dict[tuple[str, ...], float]:
        families = text_string_to_metric_families(client.get("/metrics").body.decode())
        return {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}

    wait_until(lambda: values()["kinrank_judgment_revision", "knn"] == revision)
    found = values()
    assert found["kinrank_waiting", "knn"] == 0
    assert ("kinrank_judgment_revision", "single") not in found  # it cannot learn
    version = client.get("/v1/model").json["models"]["knn"]["loaded"]["version"].partition("+")[0]
    assert found["kinrank_model_info", "knn", version] == 1
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "max_fds", "start_time_seconds"):
        assert found[f"process_{name}",] > 0


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/judgments", {"queries": [{"qid": 900, **UP, "grades": [0, 1, 2]}]}),
        ("/v1/judgments/withdraw", {"qid": 900}),
        ("/v1/model/reload", b""),
    ],
)
def test_changes_obey_the_header_that_names_the_model(path: str, body: Any, make_client, secrets):
    client = make_client(keys=True, key=secrets["admin"])
    before = client.get("/v1/model").json["models"]["knn"]["loaded"]
    chosen = client.post(path, body, x_kinrank_model="single")
    if path == "/v1/model/reload":
        assert (chosen.status, chosen.json["model"]) == (200, "single")
    else:
        assert (chosen.status, chosen.code) == (409, "unable-model")
        assert "model 'single' (SingleRanker) cannot learn" in chosen.json["error"]["message"]
    assert client.post(path, body, x_kinrank_model="unknown").status == 404
    assert client.get("/v1/model").json["models"]["knn"]["loaded"] == before, "nothing was changed"
    assert client.post(path, body, x_kinrank_model="knn").status == 200


def test_models_are_listed_and_reloaded(make_client: Callable[..., Client], models: Path, camps, secrets):
    from kinrank import KnnRanker

    client = make_client(settings=Settings(deadline=60.0, watch_interval=3600), keys=True, key=secrets["admin"])
    before = client.get("/v1/model").json["models"]
    assert before["knn"]["loaded"]["feature_names"] == ["value", "camp"]
    assert (before["knn"]["default"], before["single"]["default"]) == (True, False)
    KnnRanker(9).fit(camps).save(models / "knn", examples=camps[:5])
    reloaded = client.post("/v1/model/reload", b"", x_kinrank_model="knn")
    assert reloaded.json["version"] != before["knn"]["loaded"]["version"]
    next((models / "knn").rglob("qid.npy")).unlink()
    refused = client.post("/v1/model/reload", b"")
    assert (refused.status, refused.code) == (409, "refused-model")
    after = client.get("/v1/model").json["models"]["knn"]
    assert after["loaded"]["version"] == reloaded.json["version"]
    assert "qid.npy is missing" in after["refused"]
    assert client.post("/v1/model/reload", b"", x_kinrank_model="unknown").status == 404


def test_judgments_are_stored(make_client: Callable[..., Client], secrets):
    client = make_client(keys=True, key=secrets["admin"])
    query = {"qid": "900", **UP, "grades": [0, 2, 1]}
    assert client.post("/v1/judgments", {"queries": [query]}).json == {"kept": 1}
    assert client.post("/v1/judgments", {"queries": [{**query, "grades": [1]}]}).status == 422
    refused = client.post("/v1/judgments", {"queries": [query]}, x_kinrank_model="single")
    assert (refused.status, refused.code) == (409, "unable-model")


def test_deadline_starts_after_the_wait_for_a_revision(
    make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
):
    hour = 3600.0  # nothing but the clock, which is moved here, reaches this deadline
    client = make_client(settings=replace(PATIENT, deadline=hour, revision_seconds=2 * hour))
    elapsed = 0.0

    def check_learned(*_: object, **__: object) -> None:
        nonlocal elapsed
        if not elapsed:
            elapsed = hour + 1
            raise StaleReplicaError("not yet")

    for clock in (time.perf_counter, time.monotonic):
        monkeypatch.setattr(time, clock.__name__, lambda clock=clock: clock() + elapsed)
    monkeypatch.setattr(Service, "check_learned", check_learned)
    assert client.post("/v1/rank", UP, x_kinrank_revision="1").json["fallback"] is None


@pytest.mark.parametrize(
    ("deadline", "grace"), [(0.1, 2 * PATIENCE), (2 * PATIENCE, 0.1)], ids=["its deadline", "it is slow"]
)
def test_body_that_does_not_arrive_counts_for_its_model_until(
    models: Path, monkeypatch: pytest.MonkeyPatch, deadline: float, grace: float
):
    monkeypatch.setattr(answers, "_GRACE", grace)
    settings = Settings(deadline=deadline, body_seconds=2 * PATIENCE)
    with Service({"knn": models / "knn", "single": models / "single"}, settings=settings) as service:
        client = Client(create_app(service, metrics=Metrics()))

        def counts() -> tuple[int, int]:
            return service.expected("knn"), service.expected("single")

        def body() -> Iterator[dict[str, Any]]:
            assert counts() == (0, 1)
            yield {"type": "http.request", "body": b"{", "more_body": True}

        async def watch() -> None:
            slow = asyncio.create_task(client.request_messages("POST", "/v1/rank", body(), x_kinrank_model="single"))
            await asyncio.sleep(0)  # it starts
            async with asyncio.timeout(PATIENCE):
                while counts() != (0, 0):
                    await asyncio.sleep(0.01)
            assert not slow.done()
            slow.cancel()
            await asyncio.gather(slow, return_exceptions=True)

        client.runner.run(watch())
        assert counts() == (0, 0)
        client.runner.close()


def test_made_up_model_names_are_not_in_the_metrics(
    make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
):
    client = make_client(settings=replace(PATIENT, deadline=0.2))
    monkeypatch.setattr(Service, "weights", lambda *_, **__: time.sleep(0.5))
    assert client.post("/v1/weights", UP, x_kinrank_model="made-up").json["fallback"] == "late"
    assert client.post("/v1/rank", UP, x_kinrank_model="made-up").json["fallback"] == "no-model"
    assert "made-up" not in client.get("/metrics").body.decode()


def test_request_waits_for_the_revision_it_asks_for(make_client: Callable[..., Client], secrets):
    client = make_client(keys=True, key=secrets["admin"], settings=replace(PATIENT, revision_seconds=PATIENCE))
    stored = client.post("/v1/judgments", {"queries": [{"qid": "900", **UP, "grades": [0, 2, 1]}], "source": "panel"})
    revision = int(stored.headers["x-kinrank-revision"])
    query = {"authorization": f"Bearer {secrets['query']}"}
    ranked = client.post("/v1/rank", UP, x_kinrank_revision=str(revision), **query)
    assert ranked.json["version"].partition(".")[0].endswith(f"+{revision}")
    impatient = make_client(keys=True, settings=replace(PATIENT, revision_seconds=0.2))
    wait_until(lambda: impatient.post("/v1/rank", UP, x_kinrank_revision=str(revision), **query).status == 200)
    late = impatient.post("/v1/rank", UP, x_kinrank_revision=str(revision + 1), **query)
    assert (late.status, late.code, late.headers["retry-after"]) == (503, "stale", "1")
    assert f"up to revision {revision}, not {revision + 1}" in str(late.json)
    assert client.post("/v1/rank", UP, x_kinrank_revision="latest", **query).status == 422
    unable = client.post("/v1/rank", UP, x_kinrank_revision="1", x_kinrank_model="single", **query)
    assert (unable.status, unable.code) == (409, "unable-model")
    gone = client.post("/v1/judgments/withdraw", {"source": "panel"})
    assert (gone.json, gone.headers["x-kinrank-revision"]) == ({"withdrawn": 1}, str(revision + 1))
    assert client.post("/v1/judgments/withdraw", {}).status == 422


@pytest.mark.parametrize(("path", "body"), [("/v1/rank", UP), ("/v1/weights", UP)])
def test_parsing_counts_towards_the_deadline(
    make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, object]
):
    hour = 3600.0  # nothing but the clock, which is moved here, reaches this deadline
    client = make_client(settings=Settings(deadline=hour))
    assert client.post(path, body).json["fallback"] is None
    parse, clock, elapsed = bodies.parse, time.perf_counter, 0.0

    def parse_slowly(raw: bytes, kind: type) -> object:
        nonlocal elapsed
        elapsed += hour + 1
        return parse(raw, kind)

    monkeypatch.setattr(time, "perf_counter", lambda: clock() + elapsed)
    monkeypatch.setattr(bodies, "parse", parse_slowly)
    assert client.post(path, body).json["fallback"] == "late"


def test_search_returns_both_orders_and_an_explanation(make_client: Callable[..., Client]):
    engine = InMemoryEngine([0.3, 0.9, 0.1, 0.6])
    client = make_client(engine=engine)
    found = client.post("/v1/search", {"query": "up", "size": 3, "explain": True}).json
    assert found["engine_ids"] == ["d2", "d0", "d3"]
    assert found["ids"] == ["d1", "d3", "d0"]
    assert found["explanation"]["neighbors"]
    assert client.post("/v1/search", {"query": "down"}).json["ids"] == ["d2", "d0", "d3", "d1"]
    assert client.post("/v1/search", {"query": "no hits"}).json["ids"] == []
    weights = client.post("/v1/weights", {"query": "up"}).json
    assert weights["request"]["weights"] == [weights["weights"]["value"], weights["weights"]["camp"]]
    assert weights["request"]["doc_ids"] == ["d2", "d0", "d3", "d1"]  # the candidates of the weights
    assert weights["params"] == {"search_type": "exact"}
    nothing = client.post("/v1/weights", {"query": "no hits"}).json
    assert (nothing["weights"], nothing["request"], nothing["params"]) == (None, None, None)


def test_search_pages_and_filters(make_client: Callable[..., Client]):
    client = make_client(engine=InMemoryEngine([0.3, 0.9, 0.1, 0.6]))
    page = client.post("/v1/search", {"query": "up", "from": 1, "size": 2}).json
    assert page["ids"] == ["d3", "d0"]
    assert page["engine_ids"] == ["d0", "d3"]
    some = {"ids": {"values": ["d0", "d1", "d2"]}}
    assert client.post("/v1/search", {"query": "up", "filter": some}).json["ids"] == ["d1", "d0", "d2"]
    refused = client.post("/v1/search", {"query": "up", "filter": {"script": {"script": "true"}}})
    assert refused.status == 422
    assert "'script' is not allowed" in str(refused.json)


def test_search_returns_fields_totals_and_facets(make_client: Callable[..., Client]):
    engine = InMemoryEngine([0.3, 0.9, 0.1, 0.6])
    client = make_client(engine=engine)
    options = {"fields": ["price"], "facets": {"count": {"value_count": {"field": "price"}}}}
    found = client.post("/v1/search", {"query": "up", "size": 1, **options}).json
    assert found["total"] == {"value": 4, "relation": "eq"}
    assert found["facets"] == {"count": {"value": 4}}
    assert found["fields"].keys() == {"d1", "d2"}  # the best by our order and by the engine's
    assert found["fields"]["d1"] == {"price": pytest.approx(0.9)}
    request = client.post("/v1/weights", {"query": "up", "filter": {"ids": {"values": ["d0", "d1"]}}, **options}).json[
        "request"
    ]
    assert request["doc_ids"] == ["d0", "d1"]
    assert (request["options"]["fields"], request["options"]["facets"]) == (["price"], options["facets"])
    engine.logging = False
    without_features = client.post("/v1/search", {"query": "up", "size": 1, **options}).json
    assert (without_features["fallback"], without_features["total"]) == ("engine-down", found["total"])
    assert without_features["facets"] == found["facets"]
    for path in ("/v1/search", "/v1/weights"):
        refused = client.post(path, {"query": "up", "facets": {"first": {"top_hits": {}}}})
        assert refused.status == 422
        assert "'top_hits' is not allowed" in str(refused.json)


def test_log_names_the_model_and_the_fallback_of_every_query(make_client: Callable[..., Client], log: LogReader):
    engine = InMemoryEngine([0.3, 0.9, 0.1, 0.6])
    client = make_client(engine=engine)
    client.post("/v1/search", {"query": "up"})
    client.post("/v1/weights", {"query": "up"})
    engine.logging = False
    client.post("/v1/search", {"query": "up"}, x_kinrank_model="single")
    requests = log.wait_for("request", 3)
    assert [(each["path"], each["model"], each.get("fallback")) for each in requests] == [
        ("/v1/search", "knn", None),
        ("/v1/weights", "knn", None),
        ("/v1/search", "single", "engine-down"),
    ]


def test_judgments_take_integer_ids(make_client: Callable[..., Client], secrets):
    client = make_client(keys=True, key=secrets["admin"])
    features = [[0.1, 1.0], [0.9, 1.0]]
    body = {"qid": 901, "ids": [7, "8"], "features": features, "grades": [0, 1]}
    assert client.post("/v1/judgments", {"queries": [body]}).json == {"kept": 1}
    same = client.post("/v1/judgments", {"queries": [{**body, "ids": [7, "7"]}]})
    assert same.status == 422
    assert "duplicates" in str(same.json)
    assert client.post("/v1/judgments", {"queries": [{**body, "qid": 2**63}]}).status == 422


def test_judgments_without_features_take_those_of_the_engine(make_client: Callable[..., Client], secrets):
    engine = InMemoryEngine([0.3, 0.9, 0.1, 0.6])
    client = make_client(keys=True, key=secrets["admin"], engine=engine)
    body = {"qid": "900", "text": "up", "ids": ["d1", "d3", "d77"], "grades": [2, 1, 2]}
    assert client.post("/v1/judgments", {"queries": [body]}).json == {"kept": 1}
    for wrong, status, reason in (
        ({**body, "ids": ["d77", "d78"], "grades": [1, 0]}, 422, "none of its 2 judged documents is among"),
        ({**body, "ids": ["d1", "d1", "d2"]}, 422, "every id once"),
        ({**body, "grades": [1]}, 422, "one grade per id"),
        ({name: value for name, value in body.items() if name != "text"}, 422, "has no features"),
    ):
        refused = client.post("/v1/judgments", {"queries": [wrong]})
        assert refused.status == status
        assert reason in str(refused.json)
    alone = make_client(keys=True, key=secrets["admin"])
    assert alone.post("/v1/judgments", {"queries": [body]}).code == "no-engine"
    engine.running = False
    assert client.post("/v1/judgments", {"queries": [body]}).status == 503


def test_judged_query_is_what_a_search_ranks(service: Service):
    judged = Searcher(service, InMemoryEngine([0.3, 0.9, 0.1, 0.6])).judged("7", "up", {"d1": 2.0, "d3": 1.0})
    assert judged.candidates.ids == ["d2", "d0", "d3", "d1"]
    assert judged.grades == [0.0, 0.0, 1.0, 2.0]
    np.testing.assert_allclose(judged.candidates.features[:, 0], [0.1, 0.3, 0.6, 0.9])


def test_search_asks_the_engine_once(make_client: Callable[..., Client]):
    class OneRequest(InMemoryEngine):
        """As Elasticsearch: candidates and features come together."""

        def search_features(self, query: str, *, size: int, **_: Any) -> tuple[Hits, Float32]:
            hits = InMemoryEngine.search(self, query, size=size)
            return hits, InMemoryEngine.log(self, query, hits.doc_id.tolist()).values

        def search(self, *_: Any, **__: Any) -> Hits:
            pytest.fail("a second request")

        log = search  # type: ignore[assignment]

    client = make_client(engine=OneRequest([0.3, 0.9, 0.1, 0.6]))
    assert client.post("/v1/search", {"query": "up"}).json["ids"] == ["d1", "d3", "d0", "d2"]


def test_stopped_engine_is_reported_and_used_again(make_client: Callable[..., Client]):
    engine = InMemoryEngine([0.3, 0.9, 0.1, 0.6])
    client = make_client(engine=engine)
    engine.logging = False
    half = client.post("/v1/search", {"query": "up"})
    assert (half.status, half.json["ids"], half.json["fallback"]) == (200, ["d2", "d0", "d3", "d1"], "engine-down")
    engine.running = False
    down = client.post("/v1/search", {"query": "up"})
    assert (down.status, down.code, down.headers["retry-after"]) == (503, "engine-down", "1")
    engine.running = engine.logging = True
    assert client.post("/v1/search", {"query": "up"}).json["ids"] == ["d1", "d3", "d0", "d2"]


def test_search_without_a_required_vector_stays_in_the_engines_order(
    make_client: Callable[..., Client],
):
    engine = InMemoryEngine([0.3, 0.9, 0.1, 0.6])
    engine.compares_vectors = True
    client = make_client(engine=engine)
    bare = client.post("/v1/search", {"query": "up", "explain": True})
    assert (bare.status, bare.json["ids"], bare.json["fallback"]) == (200, ["d2", "d0", "d3", "d1"], "no-vector")
    assert "compares vectors" in bare.json["detail"]
    assert client.post("/v1/search", {"query": "up", "vector": [1.0]}).json["ids"] == ["d1", "d3", "d0", "d2"]


def test_openapi_document_describes_every_path_and_its_examples_are_accepted(client: Client):
    document = client.get("/openapi.json").json
    assert document["paths"].keys() == {
        "/v1/rank",
        "/v1/weights",
        "/v1/explain",
        "/v1/search",
        "/v1/judgments",
        "/v1/judgments/withdraw",
        "/v1/rerank",
        "/v1/events",
        "/v1/model",
        "/v1/model/reload",
        "/healthz",
        "/readyz",
    }
    assert client.post("/v1/rank", EXAMPLES[bodies.RankBody]).status == 200
    for body, example in EXAMPLES.items():
        path = next(p for p, methods in document["paths"].items() if body.__name__ in json.dumps(methods))
        answer = client.post(path, example)
        assert answer.status in (200, 403, 409) or b"the model has no feature 'bm25'" in answer.body, path


FIELDS = {
    "Ranking": "ids scores model version fallback detail novelty query_id explored arm",
    "SearchResponse": "ids scores model version fallback detail novelty query_id explored arm engine_ids "
    "total "
    "fields facets explanation",
    "QueryWeights": "weights model version fallback detail normalization fidelity request params boosts",
    "QueryExplanation": "neighbors n_neighbors unusual local_weights global_weights shares spread reasons titles "
    "choices judged",
    "ModelsResponse": "models engine events",
    "ReloadResponse": "model version",
    "JudgmentsResponse": "kept",
    "EventsResponse": "queries events ignored",
    "WithdrawResponse": "withdrawn",
    "StatusResponse": "status",
    "ReadyResponse": "status versions",
    "ErrorResponse": "error",
}


def test_responses_have_documented_fields_and_match_their_schema(
    make_client: Callable[..., Client], secrets: dict[str, str]
):
    client = make_client(keys=True, engine=InMemoryEngine([0.3, 0.9, 0.1, 0.6]))
    admin, query = ({"authorization": f"Bearer {secrets[role]}"} for role in ("admin", "query"))
    judged = {"queries": [{"qid": "900", **UP, "grades": [0, 2, 1]}]}
    search = {"query": "up", "explain": True, "fields": ["price"], "facets": {"n": {"value_count": {"field": "price"}}}}
    responses = [
        ("EventsResponse", client.post("/v1/events", {"events": [{"action_name": "click"}]}, **admin)),
        ("Ranking", client.post("/v1/rank", UP, **query)),
        ("Ranking", client.post("/v1/rank", {**UP, "arm": "a"}, **query)),
        ("Ranking", client.post("/v1/rank", {**UP, "feature_names": ["price", "x"]}, **query)),
        ("SearchResponse", client.post("/v1/search", search, **query)),
        ("QueryWeights", client.post("/v1/weights", {"query": "up"}, **query)),
        ("QueryWeights", client.post("/v1/weights", UP, **query)),
        ("QueryExplanation", client.post("/v1/explain", UP, **query)),
        ("ModelsResponse", client.get("/v1/model", **query)),
        ("ReloadResponse", client.post("/v1/model/reload", b"", **admin)),
        ("JudgmentsResponse", client.post("/v1/judgments", judged, **admin)),
        ("WithdrawResponse", client.post("/v1/judgments/withdraw", {"qid": "900"}, **admin)),
        ("StatusResponse", client.get("/healthz")),
        ("ReadyResponse", client.get("/readyz")),
        ("ErrorResponse", client.post("/v1/rank", b"{", **query)),
    ]
    components = client.get("/openapi.json").json["components"]
    for name, response in responses:
        assert list(response.json) == FIELDS[name].split()
        jsonschema.validate(response.json, {"$ref": f"#/components/schemas/{name}", "components": components})
    (loaded,) = {tuple(each["loaded"]) for each in client.get("/v1/model", **query).json["models"].values()}
    fields = (
        "version ranker feature_names judged_queries judgments_learned unseen_judgments fit_recommended self_tested "
        "remarks evidence_revision"
    )
    assert list(loaded) == fields.split()


def test_readiness_depends_on_models_and_draining(make_client: Callable[..., Client]):
    client = make_client(settings=PATIENT)
    versions = [each["loaded"]["version"] for each in client.get("/v1/model").json["models"].values()]
    assert client.get("/readyz").json == {"versions": versions, "status": "ready"}
    client.app.draining = True
    draining = client.get("/readyz")
    assert (draining.status, draining.code, draining.headers["connection"]) == (503, "draining", "close")
    assert client.post("/v1/rank", UP).status == 200


def test_process_with_a_damaged_model_starts_unready_and_says_why(models: Path, tmp_path: Path):
    from kinrank.serve._http.app import create_app
    from kinrank.serve._http.metrics import Metrics

    (models / "knn" / "manifest.json").write_text("{")
    service = Service({"good": models / "single", "bad": models / "knn"}, settings=PATIENT)
    client = Client(create_app(service, metrics=Metrics()))
    loading = client.get("/readyz")
    assert (loading.status, loading.code) == (503, "no-model")
    assert "good is being loaded, bad is being loaded" in loading.json["error"]["message"]
    assert client.post("/v1/rank", UP).json["fallback"] == "no-model"
    service.start(strict=False)
    assert "bad was refused: GET /v1/model" in client.get("/readyz").json["error"]["message"]
    assert "cannot be read as JSON" in client.get("/v1/model").json["models"]["bad"]["refused"]
    assert client.post("/v1/rank", UP).json["model"] == "good"
    service.close()
    client.runner.close()


def test_page_of_the_api_is_self_contained(client: Client):
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy
    assert b"http://" not in page.body.replace(b"http://www.w3.org/2000/svg", b"")
    assert b"https://" not in page.body
