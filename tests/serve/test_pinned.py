"""Pinned documents keep their places: those of a request, and those that the engine itself pins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank.engines import Hits
from kinrank.serve._ranking import keep_places
from tests.serve.asgi import Client
from tests.serve.conftest import PATIENT
from tests.serve.engine import InMemoryEngine

RANK = {"ids": ["a", "b", "c", "d"], "features": [[0.2, 1], [0.9, 1], [0.5, 1], [0.7, 1]]}
UNKNOWN = {"feature_names": ["value", "price"]}  # which is a reason to fall back


class PinningEngine(InMemoryEngine):
    """Finds d3, with the highest value, first, as Elasticsearch marks what a query rule pins."""

    def search(self, query: str, **options: Any) -> Hits:
        hits = super().search(query, **options)
        order = np.argsort(hits.doc_id != "d3", kind="stable")
        return replace(hits.take(order.tolist()), score=np.where(hits.doc_id[order] == "d3", 1.7014124e38, 1.0))


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.randoms())
def test_pinned_candidates_stay_and_the_others_follow_the_order(pinned: list[bool], random: Any):
    order = list(range(len(pinned)))
    random.shuffle(order)
    kept = keep_places(np.array(order), pinned).tolist()
    assert sorted(kept) == sorted(order)
    assert all(kept[place] == place for place, is_pinned in enumerate(pinned) if is_pinned)
    assert [each for each in kept if not pinned[each]] == [each for each in order if not pinned[each]]


@pytest.mark.parametrize(
    ("pinned", "ids"),
    [
        ([], "bdca"),
        (["a"], "abdc"),
        (["c"], "bdca"),
        (["d", "a", "nowhere"], "abcd"),
        (["nowhere"], "bdca"),
        (["a", "b", "c", "d"], "abcd"),
    ],
)
def test_rank_keeps_pinned_candidates(client: Client, pinned: list[str], ids: str):
    answer = client.post("/v1/rank", {**RANK, "pinned": pinned}).json
    assert "".join(answer["ids"]) == ids
    scores = dict(zip(*(client.post("/v1/rank", RANK).json[name] for name in ("ids", "scores")), strict=True))
    assert answer["scores"] == [scores[document] for document in ids], "scores stay with their documents"
    fallen = client.post("/v1/rank", {**RANK, **UNKNOWN, "pinned": pinned}).json
    assert (fallen["ids"], fallen["fallback"]) == (RANK["ids"], "unknown-feature")


def test_rank_keeps_pinned_candidates_of_messagepack(client: Client):
    packed = {**RANK, "features": np.array(RANK["features"], dtype="<f4").tobytes(), "pinned": ["a"]}
    answer = client.post("/v1/rank", msgspec.msgpack.encode(packed), content_type="application/msgpack").json
    assert answer["ids"] == ["a", "b", "d", "c"]


def test_search_keeps_pinned_documents_in_the_order_of_the_engine(make_client: Callable[..., Client]):
    client = make_client(engine=InMemoryEngine([0.1, 0.2, 0.3, 0.9]), settings=replace(PATIENT, max_novelty=1e9))

    def search(**options: Any) -> list[str]:
        return client.post("/v1/search", {"query": "up", **options}).json["ids"]

    assert search() == ["d3", "d2", "d1", "d0"]
    assert search(pinned=["d0"]) == ["d0", "d3", "d2", "d1"]
    assert search(pinned=["d1", "d2"]) == ["d3", "d1", "d2", "d0"]
    assert [search(pinned=["d1"], size=1, **{"from": page})[0] for page in range(4)] == ["d3", "d1", "d2", "d0"]
    assert search(pinned=["d3"], window=3, size=3) == ["d2", "d1", "d0"], "not found: ignored"


def test_search_keeps_what_the_engine_has_pinned(make_client: Callable[..., Client]):
    engine = PinningEngine([0.6, 0.2, 0.3, 0.1])
    client = make_client(engine=engine)
    assert client.post("/v1/search", {"query": "up"}).json["ids"] == ["d3", "d0", "d2", "d1"]
    assert client.post("/v1/search", {"query": "up", "pinned": ["d1"]}).json["ids"] == ["d3", "d1", "d0", "d2"]
    engine.logging = False
    fallen = client.post("/v1/search", {"query": "up"}).json
    assert (fallen["ids"], fallen["fallback"]) == (["d3", "d1", "d2", "d0"], "engine-down")
    assert make_client(engine=InMemoryEngine([0.6, 0.2, 0.3, 0.1]), settings=PATIENT).post(
        "/v1/search", {"query": "up"}
    ).json["ids"] == ["d0", "d2", "d1", "d3"]


@pytest.mark.parametrize("pinned", ["a", [""], [7], ["a"] * 1_001])
def test_pinned_must_be_a_list_of_ids(client: Client, pinned: Any):
    answer = client.post("/v1/rank", {**RANK, "pinned": pinned})
    assert (answer.status, "$.pinned" in answer.json["error"]["message"]) == (422, True)
