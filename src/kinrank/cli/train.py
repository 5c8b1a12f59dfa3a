"""``kinrank train``: fit a ranker and write a model folder."""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from kinrank.cli import console
from kinrank.cli.comparison_tables import evidence_warnings
from kinrank.cli.inputs import (
    announce,
    check_added_rows,
    check_features,
    chosen_executor,
    read_queries,
    warn_if_perfect,
)
from kinrank.cli.options import EXAMPLES, OnLeak, table_columns
from kinrank.data.source import FORMATS
from kinrank.errors import DamagedFolderError, DataError, ParameterError
from kinrank.rankers import RANKERS
from kinrank.registry.notation import list_settings, parse_settings

if TYPE_CHECKING:
    from kinrank.data.queryset import QuerySet
    from kinrank.data.tables import ColumnNames
    from kinrank.rankers import Ranker
    from kinrank.rankers.cells.ranker import CellRanker
    from kinrank.rankers.kin.ranker import KinRanker
    from kinrank.scale import TrainingProgress
    from kinrank.study.validation import Validation

DEFAULT_RANKER = "kin"


def _ranker_names(incomplete: str) -> list[str]:
    return [name for name in RANKERS if name.startswith(incomplete)]


def _list_rankers(wanted: bool) -> None:
    if not wanted:
        return
    from kinrank.rankers.capabilities import capability_table

    for name in RANKERS:
        cls = RANKERS[name]
        typer.echo(f"{name}: {(inspect.getdoc(cls) or '').partition(chr(10))[0]}\n{list_settings(cls)}")
    typer.echo(f"\n{capability_table()}")
    raise typer.Exit


def train(
    data: Annotated[str, typer.Argument(metavar="DATA", help=f"Judged training queries: {FORMATS}.")],
    model: Annotated[str, typer.Option(metavar="FOLDER", help="Model folder to write; overwritten if present.")],
    ranker: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            autocompletion=_ranker_names,
            help=f"Ranker to fit: {', '.join(RANKERS)}; see --list.",
        ),
    ] = DEFAULT_RANKER,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Parameter of the ranker; repeatable."),
    ] = None,
    evidence: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="What people chose, from kinrank clicks --evidence; for kin."),
    ] = None,
    validate: Annotated[
        str | None,
        typer.Option(
            metavar="DATA",
            help="Held-out judged queries; keep one model for all queries unless the ranker is better on them.",
        ),
    ] = None,
    query_log: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Texts of unjudged queries, one per line, from which the n-gram encoder learns as well.",
        ),
    ] = None,
    leaks: Annotated[
        OnLeak, typer.Option(help="What to do with candidates whose features give the grade away.")
    ] = OnLeak.refuse,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Ray cluster to train on: an address, 'auto' or 'local'; for kin and cells."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes that read DATA block by block; for kin and cells.")
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for intermediate results of --ray or --workers, visible to all workers.",
            show_default="MODEL.job",
        ),
    ] = None,
    judgments_through: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="REVISION", help="Revision of the service's judgments in DATA; it learns only later ones."
        ),
    ] = None,
    list_rankers: Annotated[  # noqa: ARG001 - its callback does the work
        bool,
        typer.Option(
            "--list",
            callback=_list_rankers,
            is_eager=True,
            help="List all rankers, their parameters and capabilities.",
        ),
    ] = False,
) -> None:
    """Fit a ranker on judged queries and write it as a model folder."""
    from kinrank.study._folds import wanted_families
    from kinrank.study.study import Study
    from kinrank.study.validation import validate as run_validation

    large = ray is not None or workers is not None
    name, fitted = ranker, cast("Ranker", RANKERS[ranker](**parse_settings(RANKERS[ranker], settings or [])))
    for option, setting, value in (
        ("--columns keys=", "keys", tuple(table_columns.get()["keys"])),
        ("--evidence", "evidence", evidence),
    ):
        if value and setting not in fitted.get_params(deep=False):
            raise ParameterError(f"{option} is for a ranker with memory, which {name!r} has not: omit it, or --ranker")
        if value:
            fitted.set_params(**{setting: value})
    check_replaceable(model)
    if query_log is not None:
        fitted = _with_query_log(fitted, name, query_log)
    if large:
        _train_large(data, model, name, fitted, validate, ray, workers, job, leaks, judgments_through)
        return
    queries = read_queries(data)
    announce(queries, data, getattr(fitted, "missing", "mean"))
    queries = _without_leaks(queries, leaks)
    study: Study | None = None
    if validate is not None:
        group, held_out = fitted.get_params(deep=False).get("group_column"), read_queries(validate, queries.n_features)
        try:
            families = wanted_families(None, queries, [fitted.capabilities.remembers])
            study = Study.split(queries, held_out, group=group, families=families)
        except DataError as error:
            raise DataError(f"--validate {validate}: {error}") from error
    start = time.perf_counter()
    with console.progress(f"fitting {name}"):
        fitted.fit(queries)
    seconds = time.perf_counter() - start
    lines: list[str] = []
    if study is not None:
        with console.progress("validating"):
            found = run_validation(name, fitted, study)
        for message in evidence_warnings({name: fitted}, study.queries):
            console.warn(message)
        warn_if_perfect(found.means)
        name, fitted = found.kept_name, found.kept
        lines = list(_validation_lines(found))
    examples = queries if study is None else study.queries  # held out, if there are such queries
    fitted.save(model, examples=examples[:EXAMPLES], judgments_through=judgments_through)
    console.info(f"{model}: ranker {name!r}, fitted in {seconds:.1f} s")
    for line in fitted.remarks():
        console.info(f"{model}: {line}")
    for line in lines:
        console.info(f"{validate}: {line}")


def _train_large(
    data: str,
    model: str,
    name: str,
    ranker: Ranker,
    validate: str | None,
    ray: str | None,
    workers: int | None,
    job: str | None,
    leaks: OnLeak,
    judgments_through: int | None,
) -> None:
    """Train with `kinrank.scale.train`, which reads from disk block by block, and report the cost."""
    from kinrank.rankers.kin.ranker import KinRanker
    from kinrank.scale import train as train_from_disk

    if not ranker.capabilities.streams:
        raise ParameterError(
            f"ranker {name!r} cannot train from disk: with --ray or --workers, use --ranker kin or cells"
        )
    if validate is not None:
        raise ParameterError("--validate needs the data in memory: leave it out, then run kinrank compare")
    columns = table_columns.get()
    _check_first_queries(data, leaks, columns)
    start, spent, rows = time.perf_counter(), 0.0, 0
    with ExitStack() as stack:
        executor = stack.enter_context(chosen_executor(ray, workers))
        advance = stack.enter_context(console.progress("training"))

        def count(batch: TrainingProgress) -> None:
            nonlocal spent, rows
            spent, rows = spent + batch.seconds, rows + batch.n_rows
            advance(1)

        trained = train_from_disk(
            data,
            model,
            cast("KinRanker | CellRanker", ranker),
            executor=executor,
            job=job,
            progress=count,
            n_examples=EXAMPLES,
            judgments_through=judgments_through,
            **columns,
        )
    cells = (trained.local_ if isinstance(trained, KinRanker) else trained).model_.training_set
    held = int(cells.counts.sum())
    console.info(f"{data}: {held:,} queries, {rows:,} rows read in this run, {spent:.1f} s of worker time")
    console.info(
        f"{model}: ranker {name!r}, {len(cells.counts):,} cells, fitted in {time.perf_counter() - start:.1f} s"
    )
    memory = trained.memory_ if isinstance(trained, KinRanker) else None
    if memory is not None and len(memory.memory) < held:
        console.info(f"{model}: memory holds {len(memory.memory):,} of {held:,} queries, which is the most it keeps")
    for line in trained.remarks():
        console.info(f"{model}: {line}")


def _check_first_queries(data: str, leaks: OnLeak, columns: ColumnNames) -> None:
    """Look for features that are none, and that give the grade away, in the queries that are read first."""
    from kinrank.data.parquet import ParquetBlocks
    from kinrank.scale.training import open_blocks

    blocks = open_blocks(data, **columns)
    first = blocks.head()
    announce(first, f"{data}, the first queries")
    check_features(first, data, named=columns["features"] is not None or not isinstance(blocks, ParquetBlocks))
    if check_added_rows(first, leaks) is not None and leaks is OnLeak.drop:
        raise ParameterError("--leaks drop needs the data in memory: drop these candidates first, or use --leaks warn")


def _with_query_log(ranker: Ranker, name: str, path: str) -> Ranker:
    """Let the n-gram encoder of a ranker learn from the texts of a query log."""
    from kinrank.kin.encoders.base import Encoder
    from kinrank.kin.encoders.ngrams import NgramEncoder
    from kinrank.rankers._local.texts import unfitted_encoder
    from kinrank.rankers.capabilities import capabilities_of

    encoder: Encoder | None = unfitted_encoder(ranker) if capabilities_of(ranker).text else None
    if not isinstance(encoder, NgramEncoder):
        raise ParameterError(f"--query-log teaches the n-gram encoder, which ranker {name!r} does not use: omit it")
    try:
        texts = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--query-log {path}: cannot read it as UTF-8 text, one query per line: {error}") from error
    console.info(f"{path}: {len(texts):,} queries")
    taught: Ranker = ranker.set_params(encoder=encoder.set_params(log=tuple(texts)))
    return taught


def _without_leaks(queries: QuerySet, leaks: OnLeak) -> QuerySet:
    """Handle candidates that look like relevant documents added to the hits of an engine."""
    found = check_added_rows(queries, leaks)
    if found is None or leaks is OnLeak.warn:
        return queries
    kept = found.drop(queries)
    console.info(f"dropped {queries.n_rows - kept.n_rows:,} of {queries.n_rows:,} candidates")
    return kept


def _validation_lines(found: Validation) -> Iterator[str]:
    means = ", ".join(f"{name} {mean:.4f}" for name, mean in found.means.items())
    yield f"{found.n_queries:,} queries, {found.measure!r}: {means}"
    if found.answer is None:
        return
    yield found.answer.text
    if found.kept_name != found.name:
        yield f"kept {found.answer.gain.against} (without --validate, {found.name} is kept)"


def check_replaceable(model: str) -> None:
    """Raise before the work if something other than a model is at the path; say so if a model is."""
    from kinrank import folder
    from kinrank.store.model import KIND

    path = Path(model)
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        with suppress(DamagedFolderError):  # a damaged model may be replaced
            folder.read(path, KIND, verify=False)
        console.info(f"{model}: the model there will be replaced")
