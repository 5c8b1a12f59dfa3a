from __future__ import annotations

import traceback
from email.message import Message
from typing import Any

import pytest

from kinrank.engines import ENGINES, Engine, connect
from kinrank.engines.lucene import LuceneEngine, response_error, root_cause
from kinrank.errors import (
    EngineBusyError,
    EngineFailedError,
    EngineRefusedError,
    EngineUnreachableError,
    ParameterError,
)
from tests.engines.stub import stub_server


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_address_gives_engine_hosts_and_index(name: str):
    with connect(f"{name}+https://me:secret@a:9200,b/movies", verify_certs=False, ssl_show_warn=False) as engine:
        assert isinstance(engine, LuceneEngine)
        assert ENGINES.name_of(type(engine)) == engine.name == name
        assert engine.hosts == ["https://me:secret@a:9200", "https://b:443"]
        assert engine.index_name == "movies"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://a:9200/movies", "is not an engine address: use ENGINE"),
        ("http://me:secret@a/movies", r"'http://\.\.\.@a/movies' is not an engine address"),
        ("elasticsearch+ftp://a/movies", "is not an engine address"),
        ("solr+http://a/movies", "unknown engine 'solr': choose one of 'elasticsearch', 'opensearch'"),
        ("elasticsearch+http://a:9200", "no index given"),
        ("elasticsearch+http://a:9200/", "no index given"),
        ("elasticsearch+http://a/movies/more", "is not an engine address"),
        ("elasticsearch+http://a:92x0/movies", "is not an engine address"),
        ("opensearch+http://me:se#cret@a/movies", r"percent-encode special characters in a password \(%23 for #\)"),
        (
            "opensearch+http://me:secret@a:99999/movies",
            r"cannot open '.*//\.\.\.@a:99999/movies' \(.*port.* check the",
        ),
    ],
)
def test_invalid_address_raises(address: str, problem: str):
    with pytest.raises(ParameterError, match=f"(?i){problem}"):
        connect(address)


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
@pytest.mark.parametrize(
    "hosts",
    [
        "me:secret@a:92x0",
        "me:secret@a:99999",
        "me:secret@:9200",
        "me:secret@[::1:9200",
        "me:sec#ret@a",
        "me:sec?ret@a",
        "me:sec/ret@a",
        "me:sec ret@a",
        "me:sec,ret@a",
    ],
)
def test_errors_do_not_show_passwords(name: str, hosts: str):
    with pytest.raises(
        ParameterError, match=r"(//\.\.\.@.*is not an engine address|cannot open .*//\.\.\.@)"
    ) as caught:
        connect(f"{name}+https://{hosts}/movies")
    message = "".join(traceback.format_exception(caught.value.with_traceback(None)))
    assert "sec" not in message
    assert "ret" not in message


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_credentials_are_read_from_the_environment(name: str, monkeypatch: pytest.MonkeyPatch):
    basic = "Basic bWU6c2VjcmV0"  # me:secret
    received: list[Message] = []
    with stub_server(lambda _: {"movies": {"settings": {"index": {"uuid": "u"}}}}, received) as url:

        def authorization(address: str, **options: Any) -> str | None:
            with connect(f"{name}+{address}/movies", **options) as engine:
                engine.identity()
            return received[-1]["authorization"]

        assert authorization(url) is None
        monkeypatch.setenv("KINRANK_ENGINE_USER", "me")
        monkeypatch.setenv("KINRANK_ENGINE_PASSWORD", "secret")
        assert authorization(url) == basic
        monkeypatch.setenv("KINRANK_ENGINE_API_KEY", "a2V5")
        assert authorization(url) == "ApiKey a2V5"
        # The address and the options take precedence.
        assert authorization(url.replace("//", "//me:secret@")) == basic
        assert authorization(url, headers={"authorization": "Bearer token"}) == "Bearer token"


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_unreachable_error_does_not_show_passwords(name: str):
    with (
        connect(f"{name}+http://me:se@cret@127.0.0.1:9,you:secret@127.0.0.1:19/movies", max_retries=0) as engine,
        pytest.raises(
            EngineUnreachableError, match=r"cannot reach any of http://\.\.\.@127.0.0.1:9, http://\.\.\.@"
        ) as caught,
    ):
        engine.health()
    assert "cret" not in str(caught.value)


def test_search_without_features_raises():
    with connect("elasticsearch+http://a:9200/movies") as engine:
        assert isinstance(engine, Engine)
        with pytest.raises(ParameterError, match="opened without features"):
            engine.search("x", size=1)


def test_root_cause_of_any_error_body():
    assert root_cause("plain text") == ("error", "plain text")
    assert root_cause({"error": "text"}) == ("error", "text")
    assert root_cause({"error": {"type": "a", "reason": "b", "caused_by": {"type": "c"}}}) == ("a", "b")


@pytest.mark.parametrize(
    ("status", "kind"), [(429, EngineBusyError), (503, EngineBusyError), (400, EngineRefusedError)]
)
def test_status_selects_the_error_class(status: int, kind: type[Exception]):
    assert type(response_error(status, {"error": {"type": "t", "reason": "why"}}, "engine")) is kind


SHARDS_FAILED = {"type": "search_phase_execution_exception", "reason": "Partial shards failure", "phase": "query"}
BAD_FIELD = {"type": "query_shard_exception", "reason": "no such field"}


def lost(kind: str) -> dict[str, object]:
    return {"type": kind, "reason": "[node-2][127.0.0.1:9302][indices:data/read/search[phase/query/id]] went away"}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, lost("node_disconnected_exception")),
        (500, lost("connect_transport_exception")),
        (500, {**SHARDS_FAILED, "root_cause": [BAD_FIELD, lost("node_not_connected_exception")]}),
        (
            500,
            {
                **SHARDS_FAILED,
                "failed_shards": [{"reason": BAD_FIELD}, {"reason": lost("node_disconnected_exception")}],
            },
        ),
        (500, {**SHARDS_FAILED, "caused_by": {**BAD_FIELD, "caused_by": lost("node_closed_exception")}}),
        (404, {**SHARDS_FAILED, "failed_shards": [{"reason": lost("search_context_missing_exception")}]}),
    ],
)
def test_lost_node_is_a_busy_error(status: int, error: dict[str, object]):
    error_of_lost_node = response_error(status, {"error": error, "status": status}, "engine")
    assert type(error_of_lost_node) is EngineBusyError
    assert "lost a node during the request" in str(error_of_lost_node)
    rejected = {"error": {**SHARDS_FAILED, "root_cause": [BAD_FIELD], "failed_shards": [{"reason": BAD_FIELD}]}}
    kind = EngineFailedError if status == 500 else EngineRefusedError
    assert type(response_error(status, rejected, "engine")) is kind


def test_denied_access_mentions_credentials():
    assert "check the user, password or API key" in str(response_error(401, {"error": "no"}, "engine"))
