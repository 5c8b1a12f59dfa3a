"""Encoders behind an address, against a small server of OpenAI's embeddings format."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import numpy as np
import pytest

from kinrank.errors import EncoderError, ParameterError
from kinrank.kin.encoders import check_encoders, make_encoder


class Embeddings(BaseHTTPRequestHandler):
    """Answers with the number of letters and of spaces of each text, last text first; or with `answer`."""

    seen: ClassVar[list[tuple[str, str | None, dict[str, Any]]]] = []
    answer: ClassVar[tuple[int, bytes] | None] = None

    def do_POST(self) -> None:
        """Answer a request."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append((self.path, self.headers["Authorization"], asked))
        vectors = [[len(text), text.count(" ")] for text in asked["input"]]
        data = [{"object": "embedding", "index": place, "embedding": each} for place, each in enumerate(vectors)]
        status, body = self.answer or (200, json.dumps({"object": "list", "data": data[::-1]}).encode())
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[str]:
    Embeddings.seen.clear()
    Embeddings.answer = None
    with ThreadingHTTPServer(("127.0.0.1", 0), Embeddings) as running:
        thread = threading.Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield f"openai:http://127.0.0.1:{running.server_port}/v1#tiny"
        running.shutdown()
        thread.join()


def test_vectors_come_in_the_order_of_texts_and_in_batches(server: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KINRANK_ENCODER_KEY", "secret")
    texts = [f"{'a' * number} b" for number in range(300)]
    vectors = make_encoder(server).encode(texts)
    expected = np.array([[len(text), 1] for text in texts], dtype=np.float64)
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)
    assert [(path, key, len(asked["input"])) for path, key, asked in Embeddings.seen] == [
        ("/v1/embeddings", "Bearer secret", size) for size in (128, 128, 44)
    ]
    assert Embeddings.seen[0][2]["model"] == "tiny"


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b'{"error": "no model tiny"}', "HTTP 404: .*no model tiny"),
        (200, b"<html>", "did not answer with one embedding per text"),
        (200, b'{"data": []}', "did not answer with one embedding per text"),
        (200, b"[1]", "did not answer with one embedding per text"),
    ],
)
def test_what_is_wrong_is_said(server: str, status: int, body: bytes, message: str):
    Embeddings.answer = status, body
    with pytest.raises(EncoderError, match=message):
        make_encoder(server).encode(["cat"])


def test_nobody_there_is_said():
    with pytest.raises(EncoderError, match="cannot be reached"):
        make_encoder("openai:http://127.0.0.1:9/v1#tiny").encode(["cat"])


@pytest.mark.parametrize("address", ["http://localhost/v1", "ftp://localhost/v1#m", "#m", "http:///v1#m"])
def test_an_address_needs_a_host_and_a_model(address: str):
    with pytest.raises(ParameterError, match="openai:http://HOST/v1#MODEL, got"):
        make_encoder(f"openai:{address}")


def test_a_model_folder_may_not_send_texts_anywhere(server: str):
    with pytest.raises(EncoderError, match="gets the texts of queries"):
        check_encoders({"encoder": server})
    check_encoders({"encoder": server}, [server])


def test_an_encoder_that_is_down_is_compared_with_that_of_the_model_when_it_is_back(server: str):
    state = make_encoder(server).get_state()
    other = {**state, "probe": np.array([-1.0, 0.5])}
    Embeddings.answer = 503, b"busy"
    with pytest.warns(RuntimeWarning, match="HTTP 503: busy; it is compared with the encoder of the model later"):
        same = make_encoder(server).set_state(state)
    with pytest.warns(RuntimeWarning, match="later"):
        changed = make_encoder(server).set_state(other)
    with pytest.raises(EncoderError, match="HTTP 503"):
        same.encode(["cat"])
    Embeddings.answer = None
    assert same.encode(["cat"]).shape == (1, 2)
    for _ in range(2):
        with pytest.raises(EncoderError, match="encodes a probe text differently"):
            changed.encode(["cat"])
    with pytest.raises(EncoderError, match="encodes a probe text differently"):
        make_encoder(server).set_state(other)
