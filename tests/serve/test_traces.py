"""Traces: taken over from a request, passed on to the engine, logged and recorded as spans."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from email.message import Message
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from kinrank import KnnRanker
from kinrank.engines import FeatureSet, connect
from kinrank.serve import Service
from kinrank.serve._http.app import create_app
from kinrank.serve._http.logs import OtelTraces, Traces, read_trace, start_traces
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._search import Searcher
from tests.engines.stub import stub_server
from tests.rankers.test_texts import camps_by_text
from tests.serve.asgi import Client
from tests.serve.conftest import PATIENT, LogReader

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"
UP = {"ids": ["a", "b", "c"], "features": [[0.2, 1], [0.9, 1], [0.5, 1]]}
FEATURES = FeatureSet.parse('[search]\nmatch = "title"\n[features]\ntitle = { match = "title" }')


class Recorder:
    """Spans that were exported."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.traces = OtelTraces(provider)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self._exporter.get_finished_spans()}


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def traced() -> Iterator[Callable[..., Client]]:
    """Applications over a model, with these traces and this engine."""
    with ExitStack() as closing:

        def make(folder: Path, traces: Traces, engine: str | None = None) -> Client:
            metrics = Metrics(traces)
            service = closing.enter_context(Service({"model": folder}, settings=PATIENT, observer=metrics))
            found = None if engine is None else closing.enter_context(connect(engine, FEATURES))
            searcher = None if found is None else Searcher(service, found)
            client = Client(create_app(service, metrics=metrics, searcher=searcher))
            closing.callback(client.runner.close)
            return client

        yield make


@pytest.fixture
def headers() -> list[Message]:
    """Headers of the requests that the engine has received."""
    return []


@pytest.fixture
def engine(headers: list[Message]) -> Iterator[str]:
    """The address of an engine that finds nothing."""

    def respond(path: str) -> object:
        fields = {"fields": {"title": {"text": {"type": "text"}}}}
        return fields if "_field_caps" in path else {"hits": {"hits": []}}

    with stub_server(respond, headers) as url:
        yield f"{url}/movies"


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_trace_is_passed_on_to_the_engine_and_logged_without_opentelemetry(
    traced: Callable[..., Client], models: Path, log: LogReader, engine: str, headers: list[Message], name: str
):
    client = traced(models / "knn", Traces(), f"{name}+{engine}")
    assert client.post("/v1/search", {"query": "up"}, traceparent=PARENT, tracestate="a=1").json["ids"] == []
    assert {(each["traceparent"], each["tracestate"]) for each in headers} == {(PARENT, "a=1")}
    headers.clear()
    client.post("/v1/search", {"query": "up"})
    assert [each["traceparent"] for each in headers] == [None] * len(headers)
    assert [line.get("trace_id") for line in log.wait_for("request", 2)] == [TRACE, None]


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_request_to_the_engine_is_a_span_and_the_parent_of_what_the_engine_records(
    traced: Callable[..., Client],
    models: Path,
    log: LogReader,
    recorder: Recorder,
    engine: str,
    headers: list[Message],
    name: str,
):
    client = traced(models / "knn", recorder.traces, f"{name}+{engine}")
    client.post("/v1/search", {"query": "up"}, traceparent=PARENT, tracestate="a=1")
    spans = recorder.spans()
    assert set(spans) == {"POST /v1/search", "parse", "engine"}
    server, request = spans["POST /v1/search"], spans["engine"]
    assert (server.kind, request.kind) == (SpanKind.SERVER, SpanKind.CLIENT)
    assert (f"{server.context.trace_id:032x}", f"{server.parent.span_id:016x}") == (TRACE, CALLER)
    assert all(spans[stage].parent.span_id == server.context.span_id for stage in ("parse", "engine"))
    expected = f"00-{TRACE}-{request.context.span_id:016x}-01"
    assert {(each["traceparent"], each["tracestate"]) for each in headers} == {(expected, "a=1")}
    assert [line["trace_id"] for line in log.wait_for("request")] == [TRACE]


def test_engine_that_is_down_is_an_error_of_its_span(traced: Callable[..., Client], models: Path, recorder: Recorder):
    client = traced(models / "knn", recorder.traces, "elasticsearch+http://127.0.0.1:1/movies")
    assert client.post("/v1/search", {"query": "up"}).status == 503
    engine = recorder.spans()["engine"]
    assert (engine.status.status_code, engine.status.description) == (StatusCode.ERROR, "EngineUnreachableError")
    assert engine.events == ()  # a message may quote the query


def test_stages_of_a_ranking_are_spans(traced: Callable[..., Client], tmp_path: Path, recorder: Recorder):
    queries = camps_by_text()
    KnnRanker(10).fit(queries).save(tmp_path / "model", examples=queries[:3])
    client = traced(tmp_path / "model", recorder.traces)
    response = client.post("/v1/rank", {**UP, "text": "red shoes"}, x_request_id="mine-1", traceparent=PARENT)
    assert response.json["fallback"] is None
    spans = recorder.spans()
    server = spans.pop("POST /v1/rank")
    assert set(spans) == {"parse", "wait", "encode", "rank"}
    for span in spans.values():
        assert span.parent.span_id == server.context.span_id
        assert server.start_time <= span.start_time <= span.end_time <= server.end_time
    assert spans["rank"].attributes == {"kinrank.batch_size": 1}
    expected = {
        "http.response.status_code": 200,
        "http.route": "/v1/rank",
        "kinrank.model": "model",
        "kinrank.request_id": "mine-1",
    }
    assert expected.items() <= server.attributes.items()


def test_request_without_a_trace_starts_one_and_probes_are_not_traced(
    traced: Callable[..., Client], models: Path, log: LogReader, recorder: Recorder
):
    client = traced(models / "knn", recorder.traces)
    assert client.get("/healthz").status == 200
    assert recorder.spans() == {}
    client.post("/v1/rank", UP, traceparent="00-nonsense")
    server = recorder.spans()["POST /v1/rank"]
    assert server.parent is None
    assert [line["trace_id"] for line in log.wait_for("request")] == [f"{server.context.trace_id:032x}"]


def test_caller_decides_whether_a_request_is_sampled(traced: Callable[..., Client], models: Path, recorder: Recorder):
    client = traced(models / "knn", recorder.traces)
    assert client.post("/v1/rank", UP, traceparent=PARENT[:-2] + "00").json["fallback"] is None
    assert recorder.spans() == {}


@pytest.mark.parametrize(
    "header",
    [
        "",
        PARENT.upper(),
        PARENT + "-more",
        "ff" + PARENT[2:],
        PARENT.replace(TRACE, "0" * 32),
        PARENT.replace(CALLER, "0" * 16),
        PARENT + "\n",
    ],
)
def test_invalid_trace_is_ignored(header: str):
    assert read_trace([(b"traceparent", header.encode()), (b"tracestate", b"a=1")]) == {}


def test_later_version_of_the_header_may_have_more_fields_and_a_bad_state_is_left_out():
    later = f"01{PARENT[2:]}-more"
    assert read_trace([(b"traceparent", later.encode()), (b"tracestate", b"x" * 513)]) == {"traceparent": later}


@pytest.mark.parametrize(
    ("environ", "records"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_environment_decides_whether_spans_are_recorded(environ: dict[str, str], records: bool):
    traces = start_traces(environ)
    assert isinstance(traces, OtelTraces) == records
    traces.close()


def test_spans_are_sent_to_the_collector_before_the_process_ends(monkeypatch: pytest.MonkeyPatch):
    paths: list[str] = []
    with stub_server(lambda path: paths.append(path) or {}) as url:
        for name, value in {"EXPORTER_OTLP_ENDPOINT": url, "RESOURCE_ATTRIBUTES": "service.name=films,zone=a"}.items():
            monkeypatch.setenv(f"OTEL_{name}", value)
        traces = start_traces()
        assert isinstance(traces, OtelTraces)
        attributes = traces._provider.resource.attributes
        assert (attributes["service.name"], attributes["zone"]) == ("films", "a")
        scope = {"method": "GET", "scheme": "http", "headers": []}
        with traces.request(scope, "/v1/model") as outcome:
            outcome["status"] = 200
        traces.close()
    assert paths == ["/v1/traces"]


def test_service_runs_without_traces_that_cannot_be_recorded(log: LogReader):
    assert type(start_traces({"OTEL_TRACES_EXPORTER": "carrier-pigeon"})) is Traces
    (line,) = log.wait_for("tracing")
    assert "no exporter 'carrier-pigeon' is installed" in line["message"]


def test_service_runs_with_variables_that_cannot_be_read(log: LogReader, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "many")
    assert type(start_traces({"OTEL_TRACES_EXPORTER": "console"})) is Traces
    assert "traces are not recorded" in log.wait_for("tracing")[0]["message"]


def test_nothing_is_imported_without_an_exporter():
    code = (
        "import sys; from kinrank.serve._http.metrics import Metrics, Traces; "
        "from kinrank.serve._http.logs import start_traces; assert type(start_traces({})) is Traces; Metrics(); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
