"""``kinrank report``: rankings compared on one page that can be passed around."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import files, messages
from kinrank.cli.tables import gaps
from kinrank.errors import ParameterError
from kinrank.registry import import_extra

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet

DEFAULT_MEASURES = ("NDCG@10", "NDCG@1", "AP", "RR")


def report(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged test queries: {files.FORMS}.")],
    entrants: Annotated[
        list[str],
        typer.Argument(
            metavar="ENTRANT",
            help="Model folders, TREC runs, or rankers by name as in 'knn(n_neighbors=400)'; the first is the "
            "baseline, the second what the report is about.",
        ),
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help="The HTML file; one there is replaced.")] = "report.html",
    train: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="The queries that were learned from: to fit rankers by name, to name neighbors, to find test queries "
            "that are not new.",
        ),
    ] = None,
    validate: Annotated[
        str | None, typer.Option(metavar="DATA", help="Queries to show the effect of k on, in place of test queries.")
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            metavar="MEASURE",
            help="The first is what the report is told by; repeatable.",
            show_default=", ".join(DEFAULT_MEASURES),
        ),
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="What was measured, in your words.", show_default="the name of the data")
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="The query column to name queries by.", show_default="text, query or the id"
        ),
    ] = None,
) -> None:
    """Write one self-contained HTML file: who gains, which queries, why, and whether to believe it."""
    from kinrank.measure import parse_measure
    from kinrank.study.comparison import compare
    from kinrank.study.entrants import enter
    from kinrank.study.report import STEPS, collect, write_page
    from kinrank.study.report.words import evidence, headline, provenance

    # What can fail for other reasons than the data fails before the work.
    import_extra("jinja2", "report")
    if not Path(out).absolute().parent.is_dir():
        raise ParameterError(f"{out}: there is no such folder to write to; make it, or name another with --out")
    if len(entrants) < 2:
        raise ParameterError("a report needs a baseline and something to hold against it: name two entrants or more")
    wanted = list(dict.fromkeys(parse_measure(text) for text in measures or DEFAULT_MEASURES))
    n_features = _n_features(entrants)
    judged = None if train is None else _read(train, n_features)
    tests = _read(data, n_features or (judged.n_features if judged is not None else None))
    validation = None if validate is None else _read(validate, tests.n_features)
    labels = _labels(entrants)
    with messages.working("ranking", len(entrants)) as advance:
        measured = []
        for text in entrants:
            measured.append(replace(enter(text, tests, wanted, train=judged), name=labels[text]))
            advance(1)
    with messages.working("testing the differences"):
        comparison = compare(tests, measured)
    with messages.working("looking at the queries", STEPS) as advance:
        said = title or Path(data).name
        findings = collect(
            comparison, title=said, name_column=names, judged=judged, validation=validation, advance=advance
        )
    size = write_page(out, findings)
    for entrant in comparison.entrants:
        if entrant.coverage is not None:
            for gap in gaps(entrant.name, entrant.coverage, tests.n_rows):
                messages.warn(gap)
    if findings.guard is None or findings.guard.seen or findings.guard.unchecked:
        messages.warn(provenance(findings.guard, len(tests)))
    messages.show(f"{headline(findings)}\n{evidence(findings)}")
    messages.say(f"{out}: {size / 1e6:.1f} MB")


def _read(path: str, n_features: int | None) -> QuerySet:
    with messages.working(f"reading {path}"):
        return files.Source(path, n_features).read()


def _n_features(entrants: list[str]) -> int | None:
    """How many features the first model has: a feature that no line of a LETOR file names is 0, not unknown."""
    from kinrank.store import read_model
    from kinrank.study.entrants import origin_of

    return next((len(read_model(text).feature_names) for text in entrants if origin_of(text) == "model"), None)


def _labels(entrants: list[str]) -> dict[str, str]:
    """What each entrant is called: a path by its last part, where no other is called the same."""
    short = [Path(text).name if Path(text).exists() else text for text in entrants]
    return {text: name if short.count(name) == 1 else text for text, name in zip(entrants, short, strict=True)}
