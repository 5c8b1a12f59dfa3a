"""``kinrank demo``: a movie search in the browser that shows what kinrank does."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Annotated

import typer

from kinrank.cli import console
from kinrank.cli.options import check_port
from kinrank.registry import import_extra


def demo(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on, at 127.0.0.1.")] = 8000,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    faq: Annotated[
        bool, typer.Option("--faq", help="Answers of kinrank's documentation that learn from thumbs.")
    ] = False,
    write: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write the movies, judgments and clicks as sample files instead."),
    ] = None,
) -> None:
    """Search 2,500 movies in the browser: the engine's order, LightGBM and kinrank side by side."""
    if write is not None:
        _write(write)
        return
    uvicorn = import_extra("uvicorn", "demo")
    check_port("127.0.0.1", port)
    console.info("kinrank demo: the page opens in some seconds.")
    with console.progress("loading the documentation" if faq else "loading movies and models"):
        from kinrank.demo._demo import Demo
        from kinrank.demo._faq import Faq
        from kinrank.demo._http import create_app

        shown = Faq() if faq else Demo()
        app = create_app(shown)
    # What ranks is compiled while the browser starts; the page's first search waits for it, and says so.
    first = shown.examples["examples" if faq else "helps"][0]
    threading.Thread(target=shown.search, args=(first,), daemon=True).start()
    address = f"http://127.0.0.1:{port}"
    typer.echo(address)
    console.info("Press Ctrl+C to stop.")
    if browser:
        typer.launch(address)  # before the server starts: its socket is there before a browser has started
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


def _write(folder: Path) -> None:
    with console.progress("writing movies, judgments and clicks"):
        from kinrank.demo.samples import write_samples

        contents = write_samples(folder)
    for name, content in contents.items():
        typer.echo(f"{folder / name}: {content}")
