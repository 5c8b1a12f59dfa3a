"""Without keys, a web page of another host cannot send requests under its own name."""

from __future__ import annotations

import http.client
from pathlib import Path

import pytest

from kinrank.serve._http.middleware import is_loopback
from tests.processes import PATIENCE
from tests.serve.asgi import Client  # noqa: F401 - these tests need the extra
from tests.serve.servers import Server, one_thread, serving


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("127.0.0.1:8080", True),
        ("127.8.8.8", True),
        ("[::1]:8080", True),
        ("[::1]", True),
        ("evil.example:8080", False),
        ("127.0.0.1.evil.example", False),
        ("localhost.evil.example", False),
        ("192.168.0.1", False),
        ("", False),
        ("[::1", False),
    ],
)
def test_loopback_hosts(host: str, local: bool):
    assert is_loopback(host) is local


def status(server: Server, host: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    try:
        connection.request("GET", "/v1/model", headers={"Host": host})
        return connection.getresponse().status
    finally:
        connection.close()


def test_service_without_keys_takes_only_requests_to_this_machine(models: Path, tmp_path: Path):
    with serving(tmp_path / "log", str(models / "knn"), "--set", "drain_seconds=0.1", env=one_thread()) as server:
        assert [status(server, host) for host in (f"localhost:{server.port}", "127.0.0.1", "evil.example")] == [
            200,
            200,
            421,
        ]
    with serving(
        tmp_path / "log", str(models / "knn"), "--set", "drain_seconds=0.1", "--open", env=one_thread()
    ) as server:
        assert status(server, "search.example") == 200
