"""``kinrank log``: log the features of judged queries from a search engine to a file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import console
from kinrank.cli.options import table_columns
from kinrank.data.source import output_format
from kinrank.errors import ParameterError
from kinrank.registry.notation import parse_settings

if TYPE_CHECKING:
    from kinrank.engines._logger import LogCounts


def log(
    engine: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Engine as ENGINE+http://HOST:PORT/INDEX; several hosts are separated by commas."
        ),
    ],
    features: Annotated[str, typer.Option(metavar="FILE", help="TOML file with the feature definitions.")],
    judgments: Annotated[
        str,
        typer.Option(
            metavar="FILE", help="Judgments with a header row: .tsv, .csv (optionally .gz or .xz) or .parquet."
        ),
    ],
    out: Annotated[str, typer.Option(metavar="OUT", help="Output: NAME.parquet or a kinrank folder.")],
    vectors: Annotated[
        str | None, typer.Option(metavar="FILE", help="Parquet file of query embeddings, columns qid and vector.")
    ] = None,
    candidates: Annotated[str, typer.Option(help="Documents to log: top (the engine's first hits) or judged.")] = "top",
    top: Annotated[int, typer.Option(min=1, help="Number of the engine's first hits to log.")] = 100,
    unjudged_weight: Annotated[
        float,
        typer.Option(min=0, max=1, help="Weight of unjudged hits if the judgments have weights, as those from clicks."),
    ] = 0.05,
    workers: Annotated[int, typer.Option(min=1, help="Number of concurrent requests.")] = 4,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Parameter of the engine client, such as api_key=...; or retry_for=SECONDS (120); repeatable.",
        ),
    ] = None,
) -> None:
    """Log the features of judged queries from a search engine; an interrupted log resumes when run again."""
    from kinrank.engines import connect
    from kinrank.engines._logger import FeatureLogger, ResumableLog, read_judgments, read_vectors
    from kinrank.engines.base import RetryingPool

    if output_format(out) == "letor":
        raise ParameterError(
            f"{out}: cannot log to a LETOR file; write NAME.parquet or a folder and use kinrank data convert"
        )
    client = parse_settings(None, settings or [])
    retry_for = float(client.pop("retry_for", 120.0))
    seconds_given = client.get("timeout")
    limit = {"timeout": float(seconds_given)} if isinstance(seconds_given, int | float) else {}
    with connect(engine, features, connections=workers, **client) as opened:
        logger = FeatureLogger(
            opened,
            candidates=candidates,  # type: ignore[arg-type]  # the logger rejects other values
            top=top,
            unjudged_weight=unjudged_weight,
            **limit,
        )
        with console.progress("reading"):
            judged = read_judgments(judgments, **table_columns.get())
            if vectors is not None:
                judged = read_vectors(vectors, judged, **table_columns.get())
        pool = RetryingPool(workers, retry_for=retry_for)
        start = time.perf_counter()
        with console.progress("logging", len(judged)) as advance:
            counts = ResumableLog(out, judged, logger).write(pool, advance)
    seconds = time.perf_counter() - start
    weight = None if judged.sample_weight is None else unjudged_weight
    for line in _summary(out, counts, seconds, pool.retries, weight):
        console.info(line)


def _summary(out: str, counts: LogCounts, seconds: float, retries: int, unjudged_weight: float | None) -> list[str]:
    counted = "they count as grade 0" if unjudged_weight is None else f"they count as grade 0, weight {unjudged_weight}"
    if unjudged_weight == 0:
        counted = "their weight is 0, so nothing is learned from them"
    lines = [
        f"{out}: {counts.queries:,} queries, {counts.documents:,} documents, {len(counts.missing)} features, "
        f"{seconds:.1f} s"
    ]
    totals = {
        "judged documents skipped: not in the index": counts.absent_documents,
        "judged documents skipped: not among the engine's first hits": counts.unfound_documents,
        f"unjudged documents logged without a grade; {counted}": counts.unjudged_documents,
        "queries skipped: no document in the index": counts.empty_queries,
        "requests retried": retries,
    }
    lines += [f"{count:,} {what}" for what, count in totals.items() if count]
    lines += [f"{count:,} documents without {feature!r}" for feature, count in counts.missing.items() if count]
    return lines
