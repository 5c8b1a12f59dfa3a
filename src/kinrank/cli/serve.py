"""``kinrank serve``: serve models over HTTP."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from kinrank.cli.options import check_port
from kinrank.errors import ParameterError
from kinrank.registry.notation import parse_settings

_LISTS = ("unexplored", "trusted", "encoders")
_FILES = ("cache", "client_secret")
"""A folder for copies of models from stores, which processes can share, by default a temporary one; and a file whose
content is mixed into the hashes of clients."""
SETTINGS = (
    "log_shown",
    "explore",
    "drain_seconds",
    "max_novelty",
    "min_fidelity",
    "engine_seconds",
    "in_flight",
    "need_database",
    "map_models",
    "accept_features",
    "choice_days",
    "remembered",
    *_LISTS,
)
"""The fields of `kinrank.serve.Settings` that ``--set`` sets."""


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL",
            help="Model folder, or store of versions; NAME=MODEL for each of several models.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8080,
    fd: Annotated[
        int | None,
        typer.Option(metavar="N", help="File descriptor of a socket to listen on, which several processes can share."),
    ] = None,
    keys: Annotated[str | None, typer.Option(metavar="FILE", help="File of API keys, from kinrank admin key.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Memory for /v1/rerank, made if missing; needs no model."),
    ] = None,
    judgments: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            envvar="KINRANK_JUDGMENTS",
            help="Database for new judgments, sqlite:///PATH or postgresql://...; without it the service accepts none.",
        ),
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for models with learned judgments and a copy of rules and judgments, used at restarts.",
            show_default="next to a SQLite file, or to the model",
        ),
    ] = None,
    min_clients: Annotated[
        int,
        typer.Option(
            min=1,
            help="Clients that must have been shown a document of a query before it counts, and chosen it to lift it.",
        ),
    ] = 3,
    engine: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Search engine for /v1/search, as in kinrank log.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(metavar="FILE", help="TOML file with the feature definitions, as in kinrank log.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help=f"Setting of the service ({', '.join((*SETTINGS, *_FILES))}), or of the engine client.",
        ),
    ] = None,
    fields: Annotated[
        list[str] | None,
        typer.Option("--field", metavar="NAME", help="Document field that query keys may read; repeatable."),
    ] = None,
    filter_clause: Annotated[
        str | None,
        typer.Option("--filter", metavar="JSON", help="Filter of the engine that every document must match."),
    ] = None,
    deadline: Annotated[float, typer.Option(metavar="MS", help="Maximum time for a ranking in milliseconds.")] = 50.0,
    open_to_all: Annotated[
        bool, typer.Option("--open", help="Allow requests from other machines without API keys.")
    ] = False,
) -> None:
    """Serve rankings over HTTP; if ranking fails, the engine's order is returned."""
    from kinrank.serve import Settings
    from kinrank.serve._http.run import Options, run

    files, chosen, client = _settings(settings or [], engine)
    if fd is None:
        check_port(host, port)
    run(
        Options(
            models=_named(models or []),
            host=host,
            port=port,
            fd=fd,
            keys=keys,
            memory=memory,
            judgments=judgments,
            checkpoints=checkpoints,
            engine=engine,
            features=features,
            client=client,
            fields=None if fields is None else tuple(fields),
            filter_clause=_parse_filter(filter_clause),
            open_to_all=open_to_all,
            **files,
            settings=Settings(
                deadline=deadline / 1000,
                min_clients=min_clients,
                **chosen,
            ),
        )
    )


def _settings(given: list[str], engine: str | None) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """Return the files that the service reads, its other settings, and those of the engine client."""
    from kinrank.serve import Settings

    texts: dict[str, list[str]] = {"files": [], "lists": [], "numbers": [], "client": []}
    for text in given:
        name = text.partition("=")[0].strip()
        kind = "files" if name in _FILES else "lists" if name in _LISTS else "numbers" if name in SETTINGS else "client"
        texts[kind].append(text)
    client = parse_settings(None, texts["client"])
    if client and engine is None:
        raise ParameterError(
            f"--set takes {', '.join((*SETTINGS, *_FILES))} without --engine, got {texts['client'][0]!r}"
        )
    files = {name: str(value) for name, value in parse_settings(None, texts["files"]).items()}
    lists = {name: tuple(text.split(",")) for name, _, text in (each.partition("=") for each in texts["lists"])}
    return files, parse_settings(Settings, texts["numbers"]) | lists, client


def _parse_filter(text: str | None) -> dict[str, Any] | None:
    from kinrank.engines._query_dsl import check_filter

    if text is None:
        return None
    try:
        clause: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise ParameterError(f'--filter must be JSON, such as {{"term": {{"public": true}}}}: {error}') from None
    check_filter(clause)
    return clause


def _named(models: list[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for model in models:
        name, equals, folder = model.partition("=")
        if not equals or "://" in name:  # an address may have settings, as in ?region=eu-west-1
            name, folder = "default", model
        if name in named:
            raise ParameterError(f"two models are named {name!r}: write NAME=MODEL with different names")
        named[name] = folder
    return named
