"""Fork servers from one warm process, so that a hundred of them start quickly.

python -m tests.serve.forking_server MODEL KEYS JUDGMENTS: for every line on stdin, fork a server and write its port and
process id to stdout. It serves until it is killed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import uvicorn

from kinrank.serve import Service, Settings
from kinrank.serve._http.app import create_app
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._keys import KeyRing


def serve(listener: socket.socket, model: str, keys: str, judgments: str) -> None:
    metrics = Metrics()
    settings = Settings(deadline=60.0, watch_interval=0.2)
    service = Service({"default": model}, settings=settings, observer=metrics, judgments=judgments)
    app = create_app(service, metrics=metrics, keys=KeyRing(keys))
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="on")
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


def main() -> None:
    model, keys, judgments = sys.argv[1:]
    with Service({"default": model}, settings=Settings(deadline=60.0)) as service:
        service.reload()  # compiles; its threads end before the first fork
    for _ in sys.stdin:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        child = os.fork()
        if child == 0:
            serve(listener, model, keys, judgments)
            os._exit(0)
        sys.stdout.write(f"{listener.getsockname()[1]} {child}\n")
        sys.stdout.flush()
        listener.close()
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
