"""A local object store that speaks the protocol of S3."""

from __future__ import annotations

import http.client
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import missing
from tests.processes import PATIENCE, wait_until
from tests.serve.servers import free_port


@contextmanager
def object_store(patch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a server with the bucket ``bucket``, set the variables that lead clients to it, and yield its address."""
    program = Path(sys.executable).with_name("moto_server")
    if not program.exists():
        missing("moto is not installed: pip install '.[dev]'")
    port = free_port()
    server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL)

    def create_bucket() -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.request("PUT", "/bucket")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    try:
        wait_until(create_bucket)
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "user")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        # Small files in one request each: moto names the result of a multipart upload in a way that Arrow rejects.
        yield "s3://bucket/models?allow_delayed_open=true"
    finally:
        server.terminate()
        server.wait(PATIENCE)
