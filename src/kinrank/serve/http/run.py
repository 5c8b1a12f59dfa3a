"""A server: one process, or several that share the memory-mapped models."""

from __future__ import annotations

import logging
import os
import tempfile
from dataclasses import asdict, dataclass, field
from ipaddress import ip_address
from typing import Any

import msgspec
import uvicorn

from kinrank.engines import connect
from kinrank.errors import ParameterError
from kinrank.serve.http.app import create_app
from kinrank.serve.http.guard import Guard
from kinrank.serve.http.logs import JsonLog, LogHandler
from kinrank.serve.http.metrics import MULTIPROCESS, Metrics
from kinrank.serve.keys import KeyRing
from kinrank.serve.search import Searcher, read_labels
from kinrank.serve.service import Service
from kinrank.serve.settings import Settings

_OPTIONS = "KINRANK_SERVE"  # how the options reach worker processes
_KEEP_ALIVE = 75  # seconds; longer than load balancers keep theirs, so that they are the ones to close
_PATIENCE = 60  # seconds until a worker that says nothing is taken for dead; a machine out of breath must not lose more


@dataclass(frozen=True)
class Options:
    """What ``kinrank serve`` was told.

    Attributes
    ----------
    models
        Name to folder.
    host, port
        Where to listen.
    workers
        How many processes.
    keys
        The file of keys.
    judgments
        The folder for new judgments.
    engine, features
        The address of a search engine, and the file that defines its features; see `kinrank.engines.connect`.
    client
        What else the engine's client takes: ``api_key``, ``ca_certs``...
    titles, texts
        Files of lines ``ID<tab>TEXT``: what the page shows of documents and of judged queries.
    open_to_all
        Listen beyond this machine without keys.
    drain_seconds
        How long to go on answering after SIGTERM.
    settings
        Deadlines and bounds.
    """

    models: dict[str, str]
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    keys: str | None = None
    judgments: str | None = None
    engine: str | None = None
    features: str | None = None
    client: dict[str, Any] = field(default_factory=dict)
    titles: str | None = None
    texts: str | None = None
    open_to_all: bool = False
    drain_seconds: float = 5.0
    settings: Settings = field(default_factory=Settings)

    def check(self) -> None:
        """Refuse what would serve strangers by accident."""
        if self.keys is None and not self.open_to_all and not _loopback(self.host):
            raise ParameterError(
                f"{self.host} can be reached from elsewhere, and there are no keys: make some with kinrank key and "
                "give --keys, or say --open"
            )
        if self.workers < 1:
            raise ParameterError(f"workers must be at least 1, got {self.workers}")


def run(options: Options) -> None:
    """Serve until told to stop."""
    options.check()
    # Loaded once here, so that what is wrong with a model is said before anything listens.
    service = Service(options.models, settings=options.settings, judgments=options.judgments)
    service.start()
    service.close()
    if options.keys is not None:
        KeyRing(options.keys)
    searcher = _searcher(service, options)
    if searcher is not None:
        searcher.close()
    with tempfile.TemporaryDirectory(prefix="kinrank-metrics-") as metrics:
        if options.workers > 1:
            os.environ[MULTIPROCESS] = metrics
        os.environ[_OPTIONS] = msgspec.json.encode(asdict(options)).decode()
        uvicorn.run(
            "kinrank.serve.http.run:app_of_worker",
            factory=True,
            host=options.host,
            port=options.port,
            workers=options.workers,
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_worker_healthcheck=_PATIENCE,
            timeout_graceful_shutdown=10,
        )


def app_of_worker() -> Guard:
    """The application of one worker process, as the options in its environment say."""
    options = msgspec.json.decode(os.environ[_OPTIONS], type=Options)
    log = JsonLog()
    logging.basicConfig(handlers=[LogHandler(log)], level=logging.INFO, force=True)
    metrics = Metrics(log)
    keys = None if options.keys is None else KeyRing(options.keys)
    service = Service(
        options.models,
        settings=options.settings,
        observer=metrics,
        judgments=options.judgments,
        watch=[] if keys is None else [keys.refresh],
    )
    return create_app(
        service,
        metrics=metrics,
        log=log,
        keys=keys,
        searcher=_searcher(service, options),
        drain_seconds=options.drain_seconds,
    )


def _searcher(service: Service, options: Options) -> Searcher | None:
    if options.engine is None:
        return None
    engine = connect(options.engine, options.features, **options.client)
    return Searcher(service, engine, titles=read_labels(options.titles), texts=read_labels(options.texts))


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
