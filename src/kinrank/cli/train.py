"""``kinrank train``: a model folder from judged queries."""

from __future__ import annotations

import inspect
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import files, messages
from kinrank.errors import DamagedFolderError, DataError, ParameterError
from kinrank.rankers import RANKERS
from kinrank.registry.notation import list_settings, parse_settings

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet
    from kinrank.rankers import Ranker

DEFAULT_RANKER = "kin"
LARGE_RANKER = "cells"
"""The default where the data are read block by block: trees need them whole."""
EXAMPLES = 20
"""Training queries kept in the model folder with their scores, for the self-test of a service."""


def _ranker_names(incomplete: str) -> list[str]:
    return [name for name in RANKERS if name.startswith(incomplete)]


def _list_rankers(wanted: bool) -> None:
    if not wanted:
        return
    from kinrank.rankers.capability_table import capability_table

    for name in RANKERS:
        cls = RANKERS[name]
        typer.echo(f"{name}: {(inspect.getdoc(cls) or '').partition(chr(10))[0]}\n{list_settings(cls)}")
    typer.echo(f"\n{capability_table()}")
    raise typer.Exit


def train(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged queries: {files.FORMS}.")],
    model: Annotated[str, typer.Option(metavar="FOLDER", help="Where to write the model; one there is replaced.")],
    ranker: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            autocompletion=_ranker_names,
            help=f"{', '.join(RANKERS)}; --list says more.",
            show_default=f"{DEFAULT_RANKER}; {LARGE_RANKER} with --ray and --workers",
        ),
    ] = None,
    settings_file: Annotated[
        str | None,
        typer.Option("--settings", "-s", metavar="FILE", help="Ranker and parameters that kinrank tune chose."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A parameter of the ranker; overrides --settings; repeatable."),
    ] = None,
    validate: Annotated[
        str | None, typer.Option(metavar="DATA", help="Judged queries to measure on, beside the global model.")
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Work on a Ray cluster: its address, 'auto' or 'local'. Needs cells."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Read DATA block by block, with so many processes. Needs cells.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="With --ray or --workers: where what is done is kept, seen by all of them.",
            show_default="MODEL.job",
        ),
    ] = None,
    list_rankers: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option("--list", callback=_list_rankers, is_eager=True, help="Show all rankers and what they can do."),
    ] = False,
) -> None:
    """Learn a ranker from judged queries and write it as a folder."""
    from kinrank.cli.validation import validate as validated
    from kinrank.study.leaks import find_leaks

    large = ray is not None or workers is not None
    name, learner = _unfitted(ranker, LARGE_RANKER if large else DEFAULT_RANKER, settings_file, settings or [])
    _refuse_foreign(model)
    if large:
        from kinrank.cli.large import train_large

        train_large(data, model, name, learner, validate, ray, workers, job)
        return
    queries = _read(data)
    messages.say(f"{data}: {queries!r}")
    held_out = None if validate is None else _read(validate, queries.n_features)
    if held_out is not None:
        if held_out.y is None or held_out.feature_names != queries.feature_names:
            raise DataError(f"{validate}: must be judged and have the features of {data}, in the same order")
        find_leaks(queries, held_out).refuse(queries, held_out)
    start = time.perf_counter()
    with messages.working(f"learning {name}"):
        learner.fit(queries)
    seconds = time.perf_counter() - start
    said: list[str] = []
    if held_out is not None:
        with messages.working("validating"):
            found = validated(name, learner, queries, held_out)
        name, learner, said = found.name, found.ranker, found.said
    learner.save(model, examples=queries[:EXAMPLES])
    messages.say(f"{model}: ranker {name!r}, learned in {seconds:.1f} s")
    for line in learner.remarks():
        messages.say(f"{model}: {line}")
    for line in said:
        messages.say(f"{validate}: {line}")


def _unfitted(ranker: str | None, default: str, settings_file: str | None, settings: list[str]) -> tuple[str, Ranker]:
    """The ranker that the options name, and its name."""
    if settings_file is None:
        cls = RANKERS[ranker or default]
        made: Ranker = cls(**parse_settings(cls, settings))
        return ranker or default, made
    from kinrank.rankers.base import read_settings

    made = read_settings(settings_file)
    name = RANKERS.name_of(type(made))
    if ranker not in (None, name):
        raise ParameterError(f"{settings_file} is for ranker {name!r}, --ranker says {ranker!r}: leave one out")
    return name, made.set_params(**parse_settings(type(made), settings))


def _refuse_foreign(model: str) -> None:
    """Find out before the work, not after it, that the folder is not ours to replace."""
    from kinrank import folder
    from kinrank.store.model import KIND

    path = Path(model)
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        with suppress(DamagedFolderError):  # writing it again is how it is mended
            folder.read(path, KIND, verify=False)


def _read(path: str, n_features: int | None = None) -> QuerySet:
    with messages.working(f"reading {path}"):
        return files.Source(path, n_features).read()
