"""Query keys read the fields that they may, and no request finds documents outside the service's filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kinrank.engines._query_dsl import SearchOptions
from kinrank.errors import ParameterError
from kinrank.serve import Service
from kinrank.serve._http.app import create_app
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.run import Options, make_searcher
from kinrank.serve._keys import KeyRing
from kinrank.serve._search import Searcher, SearchPolicy
from tests.serve.asgi import Client
from tests.serve.conftest import PATIENT
from tests.serve.engine import InMemoryEngine

SUPPLIERS = {"supplier": {"terms": {"field": "supplier"}, "aggs": {"cost": {"avg": {"field": "cost"}}}}}


@pytest.fixture
def client(models: Path, tmp_path: Path, secrets: dict[str, str]) -> Any:
    service = Service({"knn": models / "knn"}, settings=PATIENT)
    service.start()
    policy = SearchPolicy(["title", "price*"], {"ids": {"values": ["d0", "d1"]}})
    searcher = Searcher(service, InMemoryEngine([0.3, 0.9, 0.1, 0.6]), policy=policy)
    client = Client(create_app(service, metrics=Metrics(), keys=KeyRing(tmp_path / "keys"), searcher=searcher))
    yield client
    client.runner.close()
    service.close()


@pytest.mark.parametrize("path", ["/v1/search", "/v1/weights"])
@pytest.mark.parametrize(
    "options",
    [
        {"fields": ["*"]},
        {"fields": ["title", "cost"]},
        {"fields": ["p*"]},
        {"facets": SUPPLIERS},
        {"facets": {"dear": {"filter": {"range": {"cost": {"gt": 9}}}}}},
        {"filter": {"bool": {"must_not": [{"range": {"cost": {"gt": 9}}}]}}},
        {"filter": {"exists": {"field": "cost"}}},
        {"filter": {"geo_distance": {"distance": "1km", "store": {"lat": 1, "lon": 1}}}},
    ],
)
def test_query_key_reads_only_permitted_fields(
    client: Client, secrets: dict[str, str], path: str, options: dict[str, Any]
):
    client.key = secrets["query"]
    answer = client.post(path, {"query": "up", **options})
    assert (answer.status, answer.code) == (403, "forbidden-field")


def test_permitted_fields_and_admin_keys(client: Client, secrets: dict[str, str]):
    client.key = secrets["query"]
    assert client.post("/v1/search", {"query": "up", "fields": ["title", "price_eur"]}).status == 200
    client.key = secrets["admin"]
    assert client.post("/v1/search", {"query": "up", "fields": ["cost"], "facets": SUPPLIERS}).status == 200


def test_no_request_widens_the_filter_of_the_service(models: Path):
    policy = SearchPolicy(None, {"term": {"public": True}})
    seen: list[Any] = []

    class Engine(InMemoryEngine):
        def search(self, query: str, *, options: Any, **more: Any) -> Any:
            seen.append(options.filter_clause)
            return super().search(query, **more)

    with Service({"knn": models / "knn"}, settings=PATIENT) as service:
        searcher = Searcher(service, Engine([0.3, 0.9]), policy=policy)
        given = {"bool": {"should": [{"term": {"public": False}}, {"term": {"public": True}}]}}
        searcher.search("up", options=SearchOptions(given))
        searcher.search("up")
        searcher.weights("up", size=2, options=SearchOptions(given))
        searcher.judged("900", "up", {"d0": 1.0})
    both = {"bool": {"filter": [{"term": {"public": True}}, given]}}
    alone = {"term": {"public": True}}
    assert seen == [both, alone, both, alone]


def test_keys_without_named_fields_permit_none(models: Path, tmp_path: Path, secrets: dict[str, str]):
    address = "elasticsearch+http://127.0.0.1:9/movies"
    service = Service({"knn": models / "knn"}, settings=PATIENT)
    for keys, fields, permitted in ((None, None, None), ("keys", None, ()), ("keys", ("title",), ("title",))):
        options = Options({"knn": str(models / "knn")}, keys=keys, engine=address, fields=fields)
        searcher = make_searcher(service, options)
        assert searcher is not None
        assert searcher.policy.fields == permitted
        searcher.close()


def test_nested_facets_of_a_billion_buckets_are_refused(client: Client, secrets: dict[str, str]):
    client.key = secrets["admin"]
    facets: dict[str, Any] = {}
    for _ in range(3):
        facets = {"title": {"terms": {"field": "title", "size": 1000}} | ({"aggs": facets} if facets else {})}
    answer = client.post("/v1/search", {"query": "up", "facets": facets})
    assert (answer.status, answer.code) == (422, "invalid")
    assert "up to 1,000,000,000 buckets" in answer.json["error"]["message"]


def test_filter_of_the_command_line_must_be_a_filter():
    from kinrank.cli.serve import _parse_filter

    assert _parse_filter('{"term": {"public": true}}') == {"term": {"public": True}}
    with pytest.raises(ParameterError, match="--filter must be JSON"):
        _parse_filter("public")
    with pytest.raises(ParameterError, match="'script' is not allowed"):
        _parse_filter('{"script": {}}')
