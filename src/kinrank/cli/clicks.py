"""``kinrank clicks``: make judgments from a click log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import console
from kinrank.errors import ParameterError

if TYPE_CHECKING:
    from rich.table import Table

    from kinrank.clicks.counts import ClickCounts
    from kinrank.clicks.examination import Examination
    from kinrank.engines.index_download import IndexDownload


def clicks(
    log: Annotated[
        list[str],
        typer.Argument(
            metavar="LOG",
            help="UBI queries and events, Metarank events or a table (.ndjson, .parquet, .csv), or the address of an "
            "engine with UBI indexes, ENGINE+http://HOST:PORT.",
        ),
    ],
    out: Annotated[str, typer.Option(metavar="OUT", help="Judgments to write: NAME.parquet or NAME.csv.")],
    model: Annotated[
        str, typer.Option(help="Model of examination: swaps, pbm, trust, cascade, coec or none.")
    ] = "swaps",
    grades: Annotated[
        str,
        typer.Option(
            metavar="NUMBERS", help="Thresholds of the grades, relative to the mean attractiveness of the log."
        ),
    ] = "",
    actions: Annotated[
        str, typer.Option(metavar="NAME=VALUE,...", help="Value of each action that counts as a click.")
    ] = "click=1",
    columns: Annotated[
        str, typer.Option(metavar="NAME=COLUMN,...", help="Columns of a table, such as query=q,document=sku.")
    ] = "",
    log_format: Annotated[str, typer.Option("--format", help="Format: auto, ubi, metarank or table.")] = "auto",
    seen: Annotated[
        str, typer.Option(help="Impressions of a UBI log: events (logged), results (returned), or auto.")
    ] = "auto",
    attributes: Annotated[
        str, typer.Option(help="Filtered, sorted or paged lists: drop, apart (as other queries) or ignore.")
    ] = "drop",
    exclude: Annotated[
        str, typer.Option(metavar="NAME=VALUE,...", help="Query attributes of lists to drop, such as model=kin.")
    ] = "",
    since: Annotated[str | None, typer.Option(metavar="DATE", help="First date to use.")] = None,
    max_rank: Annotated[int, typer.Option(min=1, help="Last rank to use.")] = 50,
    min_impressions: Annotated[int, typer.Option(min=1, help="Fewest impressions of a judged document.")] = 1,
    prior: Annotated[float, typer.Option(help="Number of impressions that the prior counts as.")] = 20.0,
    report: Annotated[str | None, typer.Option(metavar="FILE", help="HTML page with the evidence.")] = None,
    human: Annotated[
        str | None, typer.Option(metavar="FILE", help="Human judgments to compare with in the report.")
    ] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="Memory for DuckDB; larger joins go to disk.")] = "2GB",
) -> None:
    """Make judgments from a click log: correct for what users examined, and grade with uncertainty."""
    from kinrank.clicks.examination import estimate_examination
    from kinrank.clicks.judgments import THRESHOLDS, grade_counts, judgment_table, write_judgments
    from kinrank.clicks.options import LogOptions
    from kinrank.clicks.posterior import estimate_attractiveness
    from kinrank.clicks.read import read_clicks

    options = LogOptions(
        format=log_format,
        columns=_pairs("columns", columns),
        actions={name: _number("actions", value) for name, value in _pairs("actions", actions).items()},
        seen=seen,
        attributes=attributes,
        exclude=_pairs("exclude", exclude),
        since=since,
        max_rank=max_rank,
        memory=memory,
    )
    thresholds = [_number("grades", word) for word in grades.split(",")] if grades else list(THRESHOLDS)
    downloads: list[IndexDownload] = []
    files: list[str] = []
    for source in log:
        files += _download(source, out, since, downloads) if "+http" in source else [source]
    with console.progress("reading"):
        counts = read_clicks(files, options, cascade=model == "cascade")
    console.print_result(_funnel_table(counts))
    for note in counts.funnel.notes:
        console.info(note)
    with console.progress("estimating"):
        examination = estimate_examination(counts, model)
        found = estimate_attractiveness(counts, examination, strength=prior)
        table = judgment_table(counts, found, thresholds, min_impressions)
    console.print_result(_examination_table(examination))
    console.info(examination.verdict)
    for warning in examination.warnings:
        console.warn(warning)
    write_judgments(table, out)
    for download in downloads:
        download.remove()
    if report is not None:
        from kinrank.clicks.evidence import collect_evidence
        from kinrank.clicks.report import write_click_report
        from kinrank.engines.judgment_table import read_judgments

        with console.progress("collecting evidence"):
            people = None if human is None else read_judgments(human)
            evidence = collect_evidence(counts, examination, found, people)
        write_click_report(report, counts, examination, found, table, thresholds, evidence)
    listed = ", ".join(f"{number:,} of grade {grade}" for grade, number in grade_counts(table).items())
    steps = ", ".join(f"{found.prior_mean * threshold:.3f}" for threshold in thresholds)
    console.info(f"{out}: {len(table):,} judgments of {len(table['qid'].unique()):,} queries: {listed}")
    console.info(f"grades increase at an attractiveness of {steps}; the mean of the log is {found.prior_mean:.3f}")


def _download(address: str, out: str, since: str | None, downloads: list[IndexDownload]) -> list[str]:
    """Download the UBI indexes of an engine next to the output; an interrupted download resumes when run again."""
    from kinrank.engines import connect
    from kinrank.engines.index_download import IndexDownload
    from kinrank.engines.retry import RetryingPool

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


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ParameterError(f"--{option} expects numbers, got {text!r}") from None


def _funnel_table(counts: ClickCounts) -> Table:
    from rich.table import Table

    from kinrank.clicks.report import funnel_rows

    table = Table("stage", "reason", "rows", box=None, pad_edge=False)
    table.columns[2].justify = "right"
    for row in funnel_rows(counts):
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
