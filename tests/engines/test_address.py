from __future__ import annotations

import traceback
from email.message import Message
from typing import Any

import pytest

from kinrank.engines import ENGINES, Engine, connect
from kinrank.engines.lucene import LuceneEngine
from kinrank.engines.response_errors import response_error, root_cause
from kinrank.errors import EngineBusyError, EngineRefusedError, EngineUnreachableError, ParameterError
from tests.engines.stub import answering


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_an_address_names_engine_hosts_and_index(name: str):
    with connect(f"{name}+https://me:secret@a:9200,b/movies", verify_certs=False, ssl_show_warn=False) as engine:
        assert isinstance(engine, LuceneEngine)
        assert ENGINES.name_of(type(engine)) == engine.name == name
        assert engine.hosts == ["https://me:secret@a:9200", "https://b:443"]
        assert engine.index_name == "movies"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("http://a:9200/movies", "is no address of an engine: write ENGINE"),
        ("http://me:secret@a/movies", r"'http://\.\.\.@a/movies' is no address of an engine"),
        ("elasticsearch+ftp://a/movies", "is no address of an engine"),
        ("solr+http://a/movies", "unknown engine 'solr': choose one of 'elasticsearch', 'opensearch'"),
        ("elasticsearch+http://a:9200", "no index named"),
        ("elasticsearch+http://a:9200/", "no index named"),
        ("elasticsearch+http://a/movies/more", "is no address of an engine"),
        ("elasticsearch+http://a:92x0/movies", "is no address of an engine"),
        ("opensearch+http://me:se#cret@a/movies", r"signs in a password as in URLs \(%23 for #\)"),
        (
            "opensearch+http://me:secret@a:99999/movies",
            r"//\.\.\.@a:99999/movies' cannot be opened \(.*port.* check the",
        ),
    ],
)
def test_a_wrong_address_is_told(address: str, problem: str):
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
def test_a_password_is_not_repeated_in_a_message(name: str, hosts: str):
    with pytest.raises(ParameterError, match=r"//\.\.\.@.*(is no address of an engine|cannot be opened)") as caught:
        connect(f"{name}+https://{hosts}/movies")
    told = "".join(traceback.format_exception(caught.value.with_traceback(None)))
    assert "sec" not in told
    assert "ret" not in told


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_who_asks_may_stand_in_the_environment(name: str, monkeypatch: pytest.MonkeyPatch):
    basic = "Basic bWU6c2VjcmV0"  # me:secret
    asked: list[Message] = []
    with answering(lambda _: {"movies": {"settings": {"index": {"uuid": "u"}}}}, asked) as url:

        def ask(address: str, **options: Any) -> str | None:
            with connect(f"{name}+{address}/movies", **options) as engine:
                engine.identity()
            return asked[-1]["authorization"]

        assert ask(url) is None
        monkeypatch.setenv("KINRANK_ENGINE_USER", "me")
        monkeypatch.setenv("KINRANK_ENGINE_PASSWORD", "secret")
        assert ask(url) == basic
        monkeypatch.setenv("KINRANK_ENGINE_API_KEY", "a2V5")
        assert ask(url) == "ApiKey a2V5"
        # What is said by hand goes before.
        assert ask(url.replace("//", "//me:secret@")) == basic
        assert ask(url, headers={"authorization": "Bearer token"}) == "Bearer token"


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_an_engine_that_is_down_keeps_the_password_to_itself(name: str):
    with (
        connect(f"{name}+http://me:se@cret@127.0.0.1:9,you:secret@127.0.0.1:19/movies", max_retries=0) as engine,
        pytest.raises(EngineUnreachableError, match=r"none of http://\.\.\.@127.0.0.1:9, http://\.\.\.@") as caught,
    ):
        engine.health()
    assert "cret" not in str(caught.value)


def test_an_engine_without_features_says_so():
    with connect("elasticsearch+http://a:9200/movies") as engine:
        assert isinstance(engine, Engine)
        with pytest.raises(ParameterError, match="opened without features"):
            engine.search("x", size=1)


def test_the_reason_is_found_wherever_it_is():
    assert root_cause("plain text") == ("error", "plain text")
    assert root_cause({"error": "text"}) == ("error", "text")
    assert root_cause({"error": {"type": "a", "reason": "b", "caused_by": {"type": "c"}}}) == ("a", "b")


@pytest.mark.parametrize(
    ("status", "kind"), [(429, EngineBusyError), (503, EngineBusyError), (400, EngineRefusedError)]
)
def test_statuses_become_errors(status: int, kind: type[Exception]):
    assert type(response_error(status, {"error": {"type": "t", "reason": "why"}}, "engine")) is kind


SHARDS_FAILED = {"type": "search_phase_execution_exception", "reason": "Partial shards failure", "phase": "query"}
WRONG = {"type": "query_shard_exception", "reason": "no such field"}


def gone(kind: str) -> dict[str, object]:
    return {"type": kind, "reason": "[node-2][127.0.0.1:9302][indices:data/read/search[phase/query/id]] went away"}


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (500, gone("node_disconnected_exception")),
        (500, gone("connect_transport_exception")),
        (500, {**SHARDS_FAILED, "root_cause": [WRONG, gone("node_not_connected_exception")]}),
        (500, {**SHARDS_FAILED, "failed_shards": [{"reason": WRONG}, {"reason": gone("node_disconnected_exception")}]}),
        (500, {**SHARDS_FAILED, "caused_by": {**WRONG, "caused_by": gone("node_closed_exception")}}),
        (404, {**SHARDS_FAILED, "failed_shards": [{"reason": gone("search_context_missing_exception")}]}),
    ],
)
def test_a_node_that_dies_with_the_request_is_worth_asking_again(status: int, error: dict[str, object]):
    told = response_error(status, {"error": error, "status": status}, "engine")
    assert type(told) is EngineBusyError
    assert "has lost a node on the way" in str(told)
    wrong = {"error": {**SHARDS_FAILED, "root_cause": [WRONG], "failed_shards": [{"reason": WRONG}]}}
    assert type(response_error(status, wrong, "engine")) is EngineRefusedError


def test_a_wrong_key_is_told():
    assert "check the user, the password or the API key" in str(response_error(401, {"error": "no"}, "engine"))
