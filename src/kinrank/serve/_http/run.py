"""The server: one process. What runs it starts several and replaces one that dies (decision 31)."""

from __future__ import annotations

import gc
import logging
import os
import socket
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from kinrank.engines import FeatureSet, connect
from kinrank.errors import ParameterError
from kinrank.rankers import RANKERS
from kinrank.rankers.capabilities import capabilities_of
from kinrank.serve._http.app import create_app
from kinrank.serve._http.logs import JsonLog, log_event, start_traces
from kinrank.serve._http.metrics import Metrics
from kinrank.serve._http.middleware import EarlyProtocol, RequestMiddleware, is_loopback
from kinrank.serve._keys import Key, KeyRing
from kinrank.serve._search import Searcher, SearchPolicy
from kinrank.serve.service import Service
from kinrank.serve.settings import Settings
from kinrank.store import VersionStore, ranker_name

_KEEP_ALIVE_SECONDS = 75  # longer than load balancers keep connections, so that they close them
_SHUTDOWN_SECONDS = 10  # for requests in progress, after the drain


@dataclass(frozen=True)
class Options:
    """Options of ``kinrank serve``, which its help describes."""

    models: dict[str, str]
    host: str = "127.0.0.1"
    port: int = 8080
    fd: int | None = None
    keys: str | None = None
    memory: str | None = None
    judgments: str | None = None
    checkpoints: str | None = None
    cache: str | None = None
    client_secret: str | None = None
    engine: str | None = None
    features: str | None = None
    client: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the engine's client: ``api_key``, ``ca_certs``..."""
    fields: tuple[str, ...] | None = None
    """By default none if there are keys, and all without keys; see `kinrank.serve._search.SearchPolicy`."""
    filter_clause: dict[str, Any] | None = None
    open_to_all: bool = False
    settings: Settings = field(default_factory=Settings)

    def check(self) -> None:
        """Raise if the service would be open by accident, nobody could add judgments, or a folder is missing.

        A model that is there but cannot be used is no reason to exit: the service starts unready, so that a busy
        machine gets the time it needs.
        """
        if self.keys is None and not self.open_to_all and not is_loopback(self._listens_on):
            raise ParameterError(
                f"{self._listens_on} can be reached from other machines, but there are no keys: create some with "
                "kinrank admin key and pass --keys, or pass --open"
            )
        if self.judgments is not None and self.keys is None:
            raise ParameterError(
                "judgments need a key with role admin, but there are no keys: create one with kinrank admin key keys "
                "ops --role admin, and pass --keys keys"
            )
        if not self.models and self.memory is None:
            raise ParameterError("there is nothing to serve: pass a model folder, or --memory FILE")
        if not self.models and (self.judgments or self.engine):
            raise ParameterError("--judgments and --engine are for a model: pass its folder")
        if self.settings.log_shown and self.judgments is None:
            raise ParameterError("lists that were shown are kept in the database of --judgments: pass it, too")
        for folder in self.models.values():
            if not VersionStore.is_at(folder) and not Path(folder).exists():
                raise ParameterError(f"{folder} does not exist: expected a folder written by kinrank train")
        if self.settings.explore and not any(map(_may_explore, self.models.values())):
            raise ParameterError(
                "explore draws from what people may choose, and no model takes that: train one with kinrank train, "
                "on queries with texts and document ids"
            )

    @property
    def _listens_on(self) -> str:
        if self.fd is None:
            return self.host
        with socket.socket(fileno=os.dup(self.fd)) as listener:
            address = listener.getsockname()
            return "localhost" if listener.family == socket.AF_UNIX else str(address[0])


def _may_explore(folder: str) -> bool:
    """Return whether a model takes evidence of choices; nobody knows of a store of versions until it is read."""
    return VersionStore.is_at(folder) or capabilities_of(RANKERS[ranker_name(folder)]()).evidence


def run(options: Options) -> None:
    """Serve until the process is stopped."""
    options.check()
    config = uvicorn.Config(
        build_app(options),
        host=options.host,
        port=options.port,
        http=EarlyProtocol,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    uvicorn.Server(config).run(None if options.fd is None else [socket.socket(fileno=options.fd)])


def build_app(options: Options) -> RequestMiddleware:
    """Build the application from the options. Its models are loaded when it starts."""
    log = JsonLog().start()
    log_libraries()
    traces = start_traces()
    metrics = Metrics(traces)
    keys = None if options.keys is None else KeyRing(options.keys, partial(metrics.error, "keys"), log_key)
    service = Service(
        options.models,
        settings=options.settings,
        observer=metrics,
        judgments=options.judgments,
        checkpoints=options.checkpoints,
        cache=options.cache,
        memory=options.memory,
        client_secret=b"" if options.client_secret is None else Path(options.client_secret).read_bytes(),
        search=FeatureSet.read(options.features) if options.engine and options.features else None,
        watch=[] if keys is None else [keys.refresh],
    )
    searcher = make_searcher(service, options)

    def close() -> None:
        traces.close()
        log.close()

    return create_app(
        service,
        metrics=metrics,
        keys=keys,
        searcher=searcher,
        local_only=options.keys is None and not options.open_to_all,
        drain_seconds=options.settings.drain_seconds,
        on_load=freeze_loaded,
        on_shutdown=close,
    )


def log_key(what: str, key: Key) -> None:
    """Log that a key was added or removed."""
    log_event("key", key=key.name, role=key.role, what=what)


def log_libraries() -> None:
    """Log what LightGBM prints, and warnings of Python: a line that is not JSON breaks what reads the log."""
    logging.captureWarnings(True)
    with suppress(ImportError):
        import lightgbm

        lightgbm.register_logger(logging.getLogger("lightgbm"))


def freeze_loaded() -> None:
    """Leave out what is loaded by now from garbage collections: it stays.

    Otherwise a full collection goes through hundreds of thousands of objects of imported packages, and holds up all
    requests for more than 100 ms.
    """
    gc.collect()
    gc.freeze()


def make_searcher(service: Service, options: Options) -> Searcher | None:
    """Return a searcher with the engine of the options, if they name one."""
    if options.engine is None:
        return None
    engine = connect(options.engine, options.features, **options.client)
    fields = options.fields
    if fields is None and options.keys is not None:
        fields = ()
    return Searcher(service, engine, policy=SearchPolicy(fields, options.filter_clause))
