"""``kinrank serve``: models over HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from kinrank.errors import ParameterError
from kinrank.registry.notation import parse_settings


def serve(
    models: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="The folder of a model, or NAME=FOLDER for each of several.")
    ],
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8080,
    workers: Annotated[int, typer.Option(min=1, help="Processes; they share the memory of the models.")] = 1,
    keys: Annotated[str | None, typer.Option(metavar="FILE", help="Keys made by kinrank key.")] = None,
    judgments: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Take new judgments, and keep them here.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A search engine, as for kinrank log: adds search.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(metavar="FILE", help="The features to ask of the engine, as for kinrank log.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="For the engine's client, as for kinrank log; repeatable."),
    ] = None,
    titles: Annotated[
        str | None, typer.Option(metavar="FILE", help="Lines ID<tab>TEXT: documents, on the page.")
    ] = None,
    texts: Annotated[
        str | None, typer.Option(metavar="FILE", help="Lines ID<tab>TEXT: judged queries, on the page.")
    ] = None,
    deadline: Annotated[float, typer.Option(metavar="MS", help="Milliseconds that a ranking may take.")] = 50.0,
    max_novelty: Annotated[
        float,
        typer.Option(
            help="Keep the engine's order for queries with a higher novelty; 99% of judged queries are below 1."
        ),
    ] = 3.0,
    in_flight: Annotated[int, typer.Option(help="Requests per process at a time; more are shed with 503.")] = 128,
    drain: Annotated[float, typer.Option(metavar="S", help="Seconds to go on answering after SIGTERM.")] = 5.0,
    open_to_all: Annotated[bool, typer.Option("--open", help="Listen beyond this machine without keys.")] = False,
) -> None:
    """Rank live traffic over HTTP; whatever goes wrong, the engine's order comes back."""
    from kinrank.serve import Settings
    from kinrank.serve.http.run import Options, run

    run(
        Options(
            models=_named(models),
            host=host,
            port=port,
            workers=workers,
            keys=keys,
            judgments=judgments,
            engine=engine,
            features=features,
            client=parse_settings(None, settings or []),
            titles=titles,
            texts=texts,
            open_to_all=open_to_all,
            drain_seconds=drain,
            settings=Settings(deadline=deadline / 1000, max_novelty=max_novelty, in_flight=in_flight),
        )
    )


def _named(models: list[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for model in models:
        name, equals, folder = model.partition("=")
        if not equals:
            name, folder = "default", model
        if name in named:
            raise ParameterError(f"two models are called {name!r}: write NAME=FOLDER for each")
        named[name] = folder
    return named
