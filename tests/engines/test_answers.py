"""What is made of the answers of engines."""

from __future__ import annotations

import pytest

from kinrank.engines import connect
from tests.engines.stub import answering


@pytest.mark.parametrize("name", ["elasticsearch", "opensearch"])
def test_an_index_made_anew_is_another_one(name: str):
    uuid = ["first"]

    def settings(path: str) -> object:
        assert path.startswith("/movies/_settings/index.uuid")
        return {"movies-1": {"settings": {"index": {"uuid": uuid[0]}}}}

    with answering(settings) as url, connect(f"{name}+{url}/movies") as engine:
        assert engine.identity() == {"engine": name, "index": "movies first"}
        uuid[0] = "second"
        assert engine.identity()["index"] == "movies second"
