"""The server: one process, or several that share the memory-mapped models."""

from __future__ import annotations

import gc
import os
import tempfile
from dataclasses import asdict, dataclass, field
from functools import partial
from ipaddress import ip_address
from typing import Any

import msgspec
import uvicorn

from kinrank.engines import FeatureSet, connect
from kinrank.errors import ParameterError
from kinrank.serve.http.app import create_app
from kinrank.serve.http.logs import JsonLog
from kinrank.serve.http.metrics import MULTIPROCESS, Metrics
from kinrank.serve.http.middleware import RequestMiddleware
from kinrank.serve.http.protocol import BoundedProtocol
from kinrank.serve.keys import KeyRing
from kinrank.serve.search import Searcher, read_labels
from kinrank.serve.selftest import SearchInputs
from kinrank.serve.service import Service
from kinrank.serve.settings import Settings

_OPTIONS = "KINRANK_SERVE"  # environment variable that passes the options to worker processes
_KEEP_ALIVE_SECONDS = 75  # longer than load balancers keep connections, so that they close them
_UNRESPONSIVE_SECONDS = 60  # until a silent worker is restarted; long, because an overloaded machine needs its workers


@dataclass(frozen=True)
class Options:
    """Options of ``kinrank serve``.

    Attributes
    ----------
    models
        Model folder by name.
    host, port
        Address to listen on.
    workers
        Number of processes.
    keys
        File of API keys.
    judgments
        Folder for new judgments.
    engine, features
        Address of a search engine, and the file that defines its features; see `kinrank.engines.connect`.
    client
        Further arguments of the engine's client: ``api_key``, ``ca_certs``...
    titles, texts
        Files with lines ``ID<tab>TEXT``: titles of documents and texts of judged queries, shown on the page.
    open_to_all
        Listen on other than loopback addresses without keys.
    drain_seconds
        Seconds to keep serving after SIGTERM.
    settings
        Deadlines and limits.
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
        """Raise `ParameterError` if the service would be open to other machines by accident."""
        if self.keys is None and not self.open_to_all and not _is_loopback(self.host):
            raise ParameterError(
                f"{self.host} can be reached from other machines, but there are no keys: create some with kinrank key "
                "and pass --keys, or pass --open"
            )
        if self.workers < 1:
            raise ParameterError(f"workers must be at least 1, got {self.workers}")


def run(options: Options) -> None:
    """Serve until the process is stopped."""
    options.check()
    # Load everything once, so that mistakes are reported before the port is opened.
    service = Service(
        options.models, settings=options.settings, judgments=options.judgments, search=search_inputs(options)
    )
    service.start()
    service.close()
    if options.keys is not None:
        KeyRing(options.keys)
    searcher = make_searcher(service, options)
    if searcher is not None:
        searcher.close()
    with tempfile.TemporaryDirectory(prefix="kinrank-metrics-") as metrics:
        if options.workers > 1:
            os.environ[MULTIPROCESS] = metrics
        os.environ[_OPTIONS] = msgspec.json.encode(asdict(options)).decode()
        uvicorn.run(
            "kinrank.serve.http.run:create_worker_app",
            factory=True,
            host=options.host,
            port=options.port,
            workers=options.workers,
            http=BoundedProtocol,
            ws="none",
            access_log=False,
            log_config=None,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_worker_healthcheck=_UNRESPONSIVE_SECONDS,
            timeout_graceful_shutdown=10,
        )


def create_worker_app() -> RequestMiddleware:
    """Create the application of a worker process from the options in its environment."""
    options = msgspec.json.decode(os.environ[_OPTIONS], type=Options)
    log = JsonLog().start()
    metrics = Metrics()
    keys = None if options.keys is None else KeyRing(options.keys, partial(metrics.error, "keys"))
    service = Service(
        options.models,
        settings=options.settings,
        observer=metrics,
        judgments=options.judgments,
        search=search_inputs(options),
        watch=[] if keys is None else [keys.refresh],
    )
    return create_app(
        service,
        metrics=metrics,
        keys=keys,
        searcher=make_searcher(service, options),
        drain_seconds=options.drain_seconds,
        on_start=freeze_loaded,
        on_shutdown=log.close,
    )


def freeze_loaded() -> None:
    """Leave out what is loaded by now from garbage collections: it stays.

    Otherwise a full collection goes through hundreds of thousands of objects of imported packages, and holds up all
    requests for more than 100 ms.
    """
    gc.collect()
    gc.freeze()


def search_inputs(options: Options) -> SearchInputs | None:
    """Return what searches pass to the models, if the options name an engine and its features."""
    if options.engine is None or options.features is None:
        return None
    return SearchInputs.of(FeatureSet.read(options.features))


def make_searcher(service: Service, options: Options) -> Searcher | None:
    """Return a searcher with the engine of the options, if they name one."""
    if options.engine is None:
        return None
    engine = connect(options.engine, options.features, **options.client)
    return Searcher(service, engine, titles=read_labels(options.titles), texts=read_labels(options.texts))


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
