"""``kinrank clicks``: make judgments from a click log."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from datetime import date, timedelta
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinrank.cli import console
from kinrank.errors import ParameterError
from kinrank.registry.notation import parse_settings

if TYPE_CHECKING:
    from rich.table import Table

    from kinrank.clicks._counts import Funnel
    from kinrank.clicks.examination import Examination
    from kinrank.clicks.read import ClickLog, LogOptions
    from kinrank.engines._logger import IndexDownload
    from kinrank.memory.evidence import Evidence


def clicks(
    log: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG",
            help="UBI queries and events, or a table (.ndjson, .parquet, .csv), or the folder of a log by day, or the "
            "address of an engine with UBI indexes, ENGINE+http://HOST:PORT.",
        ),
    ],
    out: Annotated[
        str | None, typer.Option(metavar="OUT", help="Judgments to write: NAME.parquet or NAME.csv.")
    ] = None,
    evidence: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder to add looks and choices of each day to, for the ranker choices."),
    ] = None,
    model: Annotated[str, typer.Option(help="Model of examination: swaps, trust, cascade or none.")] = "swaps",
    grades: Annotated[
        str,
        typer.Option(
            metavar="NUMBERS", help="Thresholds of the grades: clicks per look, relative to the mean over documents."
        ),
    ] = "",
    actions: Annotated[
        str, typer.Option(metavar="NAME=VALUE,...", help="Value of each action that counts as a click.")
    ] = "click=1",
    columns: Annotated[
        str, typer.Option(metavar="NAME=COLUMN,...", help="Columns of a table, such as query=q,document=sku.")
    ] = "",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Other field of kinrank.clicks.LogOptions, such as since=2026-10-01, min_clients=3 or memory=8GB; "
            "repeatable.",
        ),
    ] = None,
    quality: Annotated[
        bool, typer.Option("--quality", help="Also measure how far the judgments can be trusted.")
    ] = False,
    human: Annotated[
        str | None, typer.Option(metavar="FILE", help="Human judgments that --quality compares with.")
    ] = None,
    human_looks: Annotated[
        float, typer.Option(metavar="LOOKS", help="Looks that a grade of --human counts as in the evidence; 0: none.")
    ] = 0.0,
    arms: Annotated[
        str | None,
        typer.Option(
            "--compare",
            metavar="ARM",
            help="Compare the two arms of an A/B test instead, by the query attribute of UBI or the column of a table "
            "that names them. You may look as often as you like.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes for --evidence; each LOG, a file or a folder of files, is a day of its own, but for the "
            "folder of a log by day.",
        ),
    ] = None,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Ray cluster in place of --workers: an address, auto or local."),
    ] = None,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="Estimate the examination of ranks and find bots again, for the folder of a log."),
    ] = False,
) -> None:
    """Make judgments from a click log, or compare two arms of an A/B test."""
    from kinrank.clicks.log import is_log
    from kinrank.clicks.read import LogOptions, open_clicks

    if arms is not None:
        print_arms(log, arms, _pairs("columns", columns), _values(actions))
        return
    chosen: dict[str, Any] = {"columns": _pairs("columns", columns), "actions": _values(actions)}
    options = LogOptions(**chosen | parse_settings(LogOptions, settings or []))
    from kinrank.clicks.choices import evidence_before_logs, examination_for
    from kinrank.clicks.judgments import (
        THRESHOLDS,
        estimate_attractiveness,
        grade_counts,
        judgment_table,
        write_judgments,
    )

    target = out or evidence
    if target is None:
        raise ParameterError("nothing to write: pass --out FILE for judgments, --evidence DIR for evidence, or both")
    if human_looks and (human is None or evidence is None):
        raise ParameterError("--human-looks needs --human FILE and --evidence DIR")
    if evidence is not None and len(log) == 1 and is_log(log[0]):
        if out or quality or human:
            raise ParameterError(
                "the folder of a log is counted for --evidence alone: run again with --out or --quality"
            )
        _count_log(log[0], evidence, model, options, ray, workers, refit=refit)
        return
    if refit:
        raise ParameterError("--refit is for the folder of a log and --evidence: pass one, with impressions/day=...")
    if workers is not None or ray is not None:
        if evidence is None or out or quality or human:
            raise ParameterError("--workers and --ray are for --evidence alone: leave out --out, --quality and --human")
        _add_logs(log, evidence, model, options, ray, workers)
        return
    thresholds = [_number("grades", word) for word in grades.split(",")] if grades else list(THRESHOLDS)
    downloads: list[IndexDownload] = []
    files: list[str] = []
    for source in log:
        files += _download(source, target, options.since, downloads) if "+http" in source else [source]
    if evidence is not None:  # before a long log is read
        evidence_before_logs(evidence, files)
    judged = _judgments_as_evidence(human, human_looks) if human is not None and human_looks else None
    with ExitStack() as stack:
        with console.progress("reading"):
            opened = stack.enter_context(open_clicks(files, options))
            counts = opened.counts(cascade=model == "cascade")
        _tell_funnel(counts.funnel)
        for note in counts.funnel.notes:
            console.info(note)
        with console.progress("estimating"):
            examination = examination_for(counts, model, evidence)
            attractiveness = estimate_attractiveness(counts, examination)
            said = len(counts.funnel.notes)
            table = None if out is None else judgment_table(counts, attractiveness, thresholds)
        _tell_examination(examination)
        for note in counts.funnel.notes[said:]:
            console.info(note)
        if out is not None and table is not None:
            write_judgments(table, out)
        if evidence is not None:
            _add_evidence(opened, examination, evidence, files, judged)
    for download in downloads:
        download.remove()
    if quality:
        from kinrank.clicks._report import measure_quality, quality_lines
        from kinrank.engines._logger import read_judgments

        with console.progress("measuring quality"):
            people = None if human is None else read_judgments(human)
            measured = measure_quality(counts, examination, attractiveness, people)
        for line in quality_lines(examination, measured):
            console.print_result(line)
    if out is None or table is None:
        return
    listed = ", ".join(f"{number:,} of grade {grade}" for grade, number in grade_counts(table).items())
    steps = ", ".join(f"{attractiveness.prior_mean * threshold:.3f}" for threshold in thresholds)
    console.info(f"{out}: {len(table):,} judgments of {len(table['qid'].unique()):,} queries: {listed}")
    console.info(
        f"grades increase at {steps} clicks per look; the mean over documents is {attractiveness.prior_mean:.3f}"
    )


def _judgments_as_evidence(human: str, looks: float) -> Evidence:
    from kinrank.engines._logger import read_judgments
    from kinrank.memory.evidence import Evidence

    return Evidence.of_judgments(read_judgments(human), looks)


def _add_evidence(
    log: ClickLog, examination: Examination, folder: str, files: list[str], judged: Evidence | None
) -> None:
    """Add the log, and human judgments if there are any, to a folder of evidence."""
    from kinrank.clicks.choices import write_evidence

    before = len(log.funnel.notes)
    with console.progress("adding evidence"):
        added = write_evidence(log, examination, folder, files, judged=judged, on_wait=console.info)
    for note in log.funnel.notes[before:]:
        console.info(note)
    _tell(added, folder)


def _add_logs(
    logs: list[str], folder: str, model: str, options: LogOptions, ray: str | None, workers: int | None
) -> None:
    """Add many logs to a folder of evidence, each by a worker."""
    from kinrank.cli.inputs import chosen_executor
    from kinrank.clicks._counts import Funnel
    from kinrank.clicks.choices import add_logs

    files = [sorted(map(str, Path(log).iterdir())) if Path(log).is_dir() else [log] for log in logs]
    whole = Funnel()
    with chosen_executor(ray, workers) as executor, console.progress("adding logs") as advance:

        def count(funnel: Funnel) -> None:
            whole.add(funnel)
            advance(1)

        added = add_logs(files, folder, model, options, executor=executor, progress=count, on_wait=console.info)
    _tell_funnel(whole)
    _tell(added, folder)


def _count_log(
    log: str, folder: str, model: str, options: LogOptions, ray: str | None, workers: int | None, *, refit: bool
) -> None:
    """Count what changed in the folder of a log, and write all of it as evidence."""
    from kinrank.cli.inputs import chosen_executor
    from kinrank.clicks.choices import examination_for
    from kinrank.clicks.partitions import (
        count_partitions,
        fit_first_pass,
        save_first_pass,
        stored_first_pass,
        write_counted,
    )
    from kinrank.clicks.read import open_clicks

    cells = f"{folder.rstrip('/')}.cells"
    known = None if refit else stored_first_pass(cells)
    if known is None:
        with ExitStack() as stack:
            with console.progress("reading"):
                opened = stack.enter_context(open_clicks([log], options))
                counts = opened.counts(cascade=model == "cascade")
            _tell_funnel(counts.funnel)
            for note in counts.funnel.notes:
                console.info(note)
            with console.progress("estimating"):
                examination = examination_for(counts, model, None)
            _tell_examination(examination)
            known = fit_first_pass(opened, examination), examination
        save_first_pass(cells, *known)
    with chosen_executor(ray, workers) as executor, console.progress("counting") as advance:
        one = replace(options, threads=options.threads or 1)
        counted = count_partitions(log, cells, known[0], one, executor=executor, progress=advance)
    with console.progress("writing evidence"):
        written = write_counted(log, cells, folder, *known, options, on_wait=console.info)
    console.info(f"{counted.changed:,} of {counted.partitions:,} partitions counted")
    _tell(written, folder)


def _tell_examination(examination: Examination) -> None:
    """Say how ranks are examined."""
    console.print_result(_examination_table(examination))
    console.info(examination.verdict)
    for warning in examination.warnings:
        console.warn(warning)


def _tell_funnel(funnel: Funnel) -> None:
    """Say what the log lacks, then print what was read and dropped."""
    for sentence in funnel.columns:
        console.warn(sentence)
    console.print_result(_funnel_table(funnel))


def _tell(added: Evidence, folder: str) -> None:
    """Say what a folder of evidence has."""
    span = "" if added.days is None else f", {_date(added.days[0])} to {_date(added.days[1])}"
    console.info(f"{folder}: {added.n_cells:,} documents of a day, {added.n_queries:,} queries{span}")


def _date(day: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=day)).isoformat()


def _download(address: str, out: str, since: str | None, downloads: list[IndexDownload]) -> list[str]:
    """Download the UBI indexes of an engine next to the output; an interrupted download resumes when run again."""
    from kinrank.engines import connect
    from kinrank.engines._logger import IndexDownload
    from kinrank.engines.base import RetryingPool

    files: list[str] = []
    for index in ("ubi_queries", "ubi_events"):
        with connect(f"{address.rstrip('/')}/{index}") as engine, console.progress(f"downloading {index}") as advance:
            downloads.append(IndexDownload(engine, f"{out}.{index}", since))
            parts = downloads[-1].write(RetryingPool(2), advance)
        files += [str(part) for part in parts if part.stat().st_size]
    return files


def _pairs(option: str, text: str) -> dict[str, str]:
    """Parse ``NAME=VALUE,...``."""
    parts = [part.partition("=") for part in text.split(",") if part.strip()]
    for name, equals, value in parts:
        if not (name.strip() and equals and value.strip()):
            raise ParameterError(f"--{option} expects NAME=VALUE,..., got {text!r}")
    return {name.strip(): value.strip() for name, _, value in parts}


def _values(actions: str) -> dict[str, float]:
    return {name: _number("actions", value) for name, value in _pairs("actions", actions).items()}


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"--{option} expects numbers, got {text!r}") from None


def _funnel_table(funnel: Funnel) -> Table:
    from rich.table import Table

    from kinrank.clicks._report import funnel_rows

    table = Table("stage", "reason", "rows", box=None, pad_edge=False)
    table.columns[2].justify = "right"
    for row in funnel_rows(funnel):
        table.add_row(*row)
    return table


def _examination_table(examination: Examination) -> Table:
    from rich.table import Table

    table = Table("rank", "examined", "95% interval", box=None, pad_edge=False)
    for rank, slope, low, high in zip(
        examination.ranks, examination.slope, examination.low, examination.high, strict=True
    ):
        interval = f"{low:.3f} to {high:.3f}" if high > low else ""
        table.add_row(str(rank), f"{slope:.3f}", interval)
    return table


def print_arms(log: list[str], column: str, columns: dict[str, str], actions: dict[str, float]) -> None:
    """Print what people did in the two arms of an A/B test."""
    from rich.table import Table

    from kinrank.clicks.arms import compare_arms
    from kinrank.clicks.read import LogOptions

    with console.progress("reading"):
        found = compare_arms(log, column, actions=actions, options=LogOptions(columns=columns))
    table = Table(column, found.first, found.second, "difference", "always-valid interval", box=None, pad_edge=False)
    for what, pair in (("sessions", found.sessions), ("searches", found.searches)):
        table.add_row(what, *(f"{count:,}" for count in pair))
    for value in found.values:
        interval = f"{value.low:+.4f} to {value.high:+.4f}" if isfinite(value.low) else "too few sessions"
        table.add_row(value.name, f"{value.first:.4f}", f"{value.second:.4f}", f"{value.difference:+.4f}", interval)
    console.print_result(table)
    console.info(found.verdict)
