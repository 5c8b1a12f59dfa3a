"""``kinrank report``: write a comparison as one self-contained HTML file."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import console
from kinrank.cli.comparison_tables import comparison_warnings, print_near_and_far, print_traffic
from kinrank.cli.inputs import announce, read_evidence, read_queries
from kinrank.cli.options import EngineFeature, EvidenceFolder, Families, Group
from kinrank.data.source import FORMATS
from kinrank.errors import ParameterError
from kinrank.registry import import_extra

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet

DEFAULT_MEASURES = ("NDCG@10", "NDCG@1", "AP", "RR")


def report(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged test queries: {FORMATS}.")],
    entrants: Annotated[
        list[str],
        typer.Argument(
            metavar="ENTRANT",
            help="Model folder, TREC run, or ranker such as 'knn(n_neighbors=400)'; the first is the baseline, the "
            "best of the others the subject of the report.",
        ),
    ],
    out: Annotated[str, typer.Option(metavar="FILE", help="Output HTML file; overwritten if present.")] = "report.html",
    train: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Training queries, to fit rankers, to name neighbors and to find test queries seen in training.",
        ),
    ] = None,
    measures: Annotated[
        list[str] | None,
        typer.Option(
            "--measure",
            metavar="MEASURE",
            help="Measure; the first is the main one; repeatable.",
            show_default=", ".join(DEFAULT_MEASURES),
        ),
    ] = None,
    ladder: Annotated[
        bool, typer.Option(help="With --train, also fit what shows where a gain of kin comes from.")
    ] = True,
    evidence_folder: EvidenceFolder = None,
    engine: EngineFeature = None,
    group: Group = None,
    families: Families = None,
) -> None:
    """Write a self-contained HTML report: which ranker is better, for which queries, and how certain that is."""
    from kinrank.measure import parse_measure
    from kinrank.progress import Parts
    from kinrank.study._entrants import remembers
    from kinrank.study._folds import wanted_families
    from kinrank.study._leaks import leak_warning
    from kinrank.study.ladder import engine_feature
    from kinrank.study.report import STEPS, collect, write_page
    from kinrank.study.report._page import evidence, headline, provenance
    from kinrank.study.study import Study

    # Fail on wrong options before the work starts.
    import_extra("jinja2", "report")
    if not Path(out).absolute().parent.is_dir():
        raise ParameterError(f"--out {out}: its folder does not exist; create it first")
    wanted = list(dict.fromkeys(parse_measure(text) for text in measures or DEFAULT_MEASURES))
    split = read_evidence(evidence_folder)
    n_features = _n_features(entrants)
    judged = None if train is None else read_queries(train, n_features)
    tests = read_queries(data, n_features or (judged.n_features if judged is not None else None))
    order = engine or (engine_feature(tests) if len(entrants) == 1 else None)
    if len(entrants) < 2 and order is None:
        raise ParameterError(
            "a report needs a baseline and a subject: name two entrants, or one and the order of the engine "
            "(--engine-feature FEATURE)"
        )
    announce(tests if judged is None else judged, train or data)
    labels = _labels(entrants)
    used = wanted_families(families, tests, chain([split is not None], map(remembers, entrants)))
    if judged is None:
        study = Study.of_test(tests, wanted, group=group, leaks="warn", evidence=split, families=used)
    else:
        study = Study.split(judged, tests, group=group, measures=wanted, leaks="warn", evidence=split, families=used)
    for message in study.notes:
        console.info(message)
    with console.progress("ranking"):
        progress = Parts(len(entrants))
        measured = [] if order is None else [study.enter_engine(order)]
        measured += [replace(study.enter(text, progress), name=labels[text]) for text in entrants]
    with console.progress("testing the differences"):
        comparison = study.compare(measured)
    with console.progress("analyzing queries", STEPS) as advance:
        collected = collect(
            comparison,
            title=Path(data).name,
            judged=judged,
            ladder=ladder,
            titles=_titles(tests),
            sources=_sources(data, train),
            study=study,
            advance=advance,
        )
    answer = collected.answer
    warnings = comparison_warnings(comparison, answer, unchecked=(), evidence=split is not None)
    collected = replace(collected, warnings=(*filter(None, [leak_warning(study.reports)]), *warnings))
    size = write_page(out, collected)
    for message in collected.warnings:
        console.warn(message)
    leaks = collected.leak_check
    if leaks is None or leaks.seen or leaks.unchecked:
        console.warn(provenance(leaks, len(tests)))
    console.print_result(f"{headline(collected)}\n{evidence(collected)}")
    print_near_and_far(collected.near_and_far)
    if answer is not None:
        print_traffic(answer)
        console.print_result(answer.text)
    console.info(f"{out}: {size / 1e3:.0f} KB")


def _titles(queries: QuerySet) -> dict[str, str] | None:
    """Return the titles of documents by id, with which the lists of the queries that changed most are shown."""
    if queries.doc_id is None or queries.doc_title is None:
        return None
    return dict(zip(map(str, queries.doc_id.tolist()), queries.doc_title.tolist(), strict=True))


def _n_features(entrants: list[str]) -> int | None:
    """Return the number of features of the first model, if there is one; see `read_queries`."""
    from kinrank.store import read_model
    from kinrank.study._entrants import origin_of

    return next((len(read_model(text).feature_names) for text in entrants if origin_of(text) == "model"), None)


def _sources(data: str, train: str | None) -> dict[str, str]:
    paths = {"Test file": data, "Training file": train}
    return {use: path for use, path in paths.items() if path is not None}


def _labels(entrants: list[str]) -> dict[str, str]:
    """Name each entrant: paths by their last part, unless two entrants would get the same name."""
    short = [Path(text).name if Path(text).exists() else text for text in entrants]
    return {text: name if short.count(name) == 1 else text for text, name in zip(entrants, short, strict=True)}
