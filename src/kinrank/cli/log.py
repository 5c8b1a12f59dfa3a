"""``kinrank log``: the features of judged queries, from a search engine to a file."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kinrank.cli import files, messages
from kinrank.errors import ParameterError
from kinrank.registry.notation import parse_settings

if TYPE_CHECKING:
    from kinrank.engines.logger import LogCounts


def log(
    engine: Annotated[str, typer.Option(metavar="ADDRESS", help="ENGINE+http://HOST:PORT/INDEX, hosts by commas.")],
    features: Annotated[str, typer.Option(metavar="FILE", help="The definitions of the features, TOML.")],
    judgments: Annotated[
        str, typer.Option(metavar="FILE", help="A table with a header: .tsv, .csv (.gz, .xz) or .parquet.")
    ],
    out: Annotated[str, typer.Option(metavar="OUT", help="What to write: NAME.parquet, or a kinrank folder.")],
    vectors: Annotated[
        str | None, typer.Option(metavar="FILE", help="Parquet with the columns qid and vector: embeddings of queries.")
    ] = None,
    candidates: Annotated[
        str, typer.Option(help="judged: the judged documents; top: the engine's first; both.")
    ] = "judged",
    top: Annotated[int, typer.Option(min=1, help="How many of the engine's first.")] = 100,
    workers: Annotated[int, typer.Option(min=1, help="How many requests may be under way.")] = 4,
    timeout: Annotated[float, typer.Option(help="Seconds that one answer may take.")] = 30.0,
    retry_for: Annotated[float, typer.Option(help="Seconds of asking again before the log stops.")] = 120.0,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="For the engine's client: ca_certs, api_key...; repeatable."),
    ] = None,
    qid: Annotated[str, typer.Option(help="The column of query ids.")] = "qid",
    text: Annotated[str, typer.Option(help="The column of what users typed.")] = "query",
    doc_id: Annotated[str, typer.Option(help="The column of document ids.")] = "doc_id",
    y: Annotated[str, typer.Option(help="The column of grades.")] = "y",
) -> None:
    """Log the features of judged queries from a search engine; stopped half-way, it goes on when run again."""
    from kinrank.engines import connect
    from kinrank.engines.judgment_table import JudgmentColumns, read_judgments, read_vectors
    from kinrank.engines.logger import FeatureLogger
    from kinrank.engines.resumable_log import ResumableLog
    from kinrank.engines.retry import RetryingPool

    if files.form_to_write(out) == "letor":
        raise ParameterError(f"{out}: write NAME.parquet or a folder; kinrank convert makes LETOR files of them")
    with connect(engine, features, connections=workers, **parse_settings(None, settings or [])) as opened:
        logger = FeatureLogger(opened, candidates=candidates, top=top, timeout=timeout)  # type: ignore[arg-type]
        with messages.working("reading"):
            judged = read_judgments(judgments, JudgmentColumns(qid, text, doc_id, y))
            if vectors is not None:
                judged = read_vectors(vectors, judged, qid)
        pool = RetryingPool(workers, retry_for=retry_for)
        start = time.perf_counter()
        with messages.working("logging", len(judged)) as advance:
            counts = ResumableLog(out, judged, logger).write(pool, advance)
    seconds = time.perf_counter() - start
    for line in _report(out, counts, seconds, pool.retries):
        messages.say(line)


def _report(out: str, counts: LogCounts, seconds: float, repeated: int) -> list[str]:
    lines = [
        f"{out}: {counts.queries:,} queries, {counts.documents:,} documents, {len(counts.missing)} features, "
        f"{seconds:.1f} s"
    ]
    said = {
        "judged documents are not in the index, and left out": counts.absent_documents,
        "judged documents are not among the engine's first, and left out": counts.unfound_documents,
        "documents are not judged, and have grade 0": counts.unjudged_documents,
        "queries have no document in the index, and are left out": counts.empty_queries,
        "requests were sent again": repeated,
    }
    lines += [f"{count:,} {what}" for what, count in said.items() if count]
    lines += [f"{count:,} documents lack {feature!r}" for feature, count in counts.missing.items() if count]
    return lines
