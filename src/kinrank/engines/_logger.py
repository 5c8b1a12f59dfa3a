"""Log the features of judged queries from an engine, in parts that an interrupted log resumes from."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import KW_ONLY, asdict, dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, Unpack, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kinrank.arrays import Float32
from kinrank.data.delimited import SEPARATORS, read_delimited, table_suffix
from kinrank.data.files import PathLike, atomic_writer, claim_folder, write_json
from kinrank.data.parquet import read_parquet, read_parquet_table, write_parquet
from kinrank.data.query_rows import as_ids, offsets_of
from kinrank.data.queryset import QuerySet, write_folder
from kinrank.data.tables import ENGINE_RANK, TITLE, ColumnNames
from kinrank.data.texts import TEXT, VECTORS, align_vectors, normalize_text
from kinrank.engines.base import Engine, RetryingPool
from kinrank.errors import DataError, FileFormatError, ParameterError

# --- read judgments from a table with one row per judged document, and query vectors from Parquet ---------------------


FORMATS = ".tsv or .csv with a header (optionally .gz or .xz), .parquet, or .json of the Search Relevance Workbench"


_MEANINGS = {"qid": "query ids", "text": "query texts", "doc_id": "document ids", "y": "grades"}
_TEXTS = ("query", "text")
_QUEPID = ("query", "docid", "rating")


def read_judgments(path: PathLike, **columns: Unpack[ColumnNames]) -> QuerySet:
    r"""Read judged documents without features. The text of a query becomes the query column "text".

    Exports of Quepid (the columns query, docid and rating) and of OpenSearch's Search Relevance Workbench (JSON: what
    imports judgments, or the response that lists them) are recognized. What has no rating there is left out.

    Parameters
    ----------
    path
        The table. Text columns without another meaning become query columns.
    **columns
        Names of columns: qid, y, doc_id, text, query and drop, as in `QuerySet.from_table`. By default the text is in
        the column "query" or "text". It is also the id if the table has no column "qid".

    Raises
    ------
    FileFormatError
        If a column or a grade is missing, there are numeric columns besides the grades, or a document is judged twice.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "judgments.tsv"
    >>> _ = path.write_text("qid\tquery\tdoc_id\ty\n1\talien\td7\t2\n1\talien\td9\t0\n")
    >>> judged = read_judgments(path)
    >>> judged, judged.query_columns["text"].tolist()
    (QuerySet(1 queries, 2 rows, 0 features, judged), ['alien'])
    """
    table = _read_table(Path(path), columns)
    text = _text_column(table, columns)
    names = {
        "qid": _id_column(table, columns),
        "text": text,
        "doc_id": columns.get("doc_id", "doc_id"),
        "y": columns.get("y", "y"),
    }
    for option, name in names.items():
        if name not in table.column_names:
            raise FileFormatError(
                path,
                0,
                f"no column {name!r} for the {_MEANINGS[option]} among {table.column_names}: name the column that "
                f"holds them (--columns {option}=COLUMN on the command line), or add it",
            )
    judged = QuerySet.from_table(
        table, **names, query=columns.get("query", ()), drop=columns.get("drop", ()), title=columns.get("title", TITLE)
    )
    if judged.n_features:
        name = judged.feature_names[0]
        raise FileFormatError(
            path,
            0,
            f"column {name!r} is numeric, but features come from the engine: drop it, or name it as a query column "
            f"(--columns {shlex.quote(f'drop={name}')} or {shlex.quote(f'query={name}')} on the command line)",
        )
    if not judged.judged.all():
        query = judged.qid[judged.query_of_row[np.argmin(judged.judged)]].item()
        raise FileFormatError(path, 0, f"a judgment of query {query!r} has no grade: fill it or drop the row")
    _check_no_duplicates(judged, path)
    return judged


def read_vectors(path: PathLike, judged: QuerySet, **columns: Unpack[ColumnNames]) -> QuerySet:
    """Add query vectors from a Parquet file with the query ids and the column "vector" (lists of numbers)."""
    table = read_parquet_table(path)
    qid = _id_column(table, columns)
    if not {qid, VECTORS} <= set(table.column_names):
        raise FileFormatError(path, 0, f"expected the columns {qid!r} and {VECTORS!r}, got {table.column_names}")
    column = table[VECTORS].combine_chunks()
    lists = np.array(column.to_pylist(), dtype=object) if column.null_count else column.to_numpy(zero_copy_only=False)
    by_id = dict(zip(table[qid].cast(pa.string()).to_pylist(), lists, strict=True))
    text_ids = judged.replace(qid=judged.qid.astype(np.str_))
    vectors = align_vectors(text_ids, by_id)
    return judged.replace(query_columns={**judged.query_columns, VECTORS: vectors})


def _read_table(path: Path, columns: ColumnNames) -> pa.Table:
    if path.suffix == ".parquet":
        return read_parquet_table(path)
    if path.suffix == ".json":
        return _read_workbench(path)
    if table_suffix(path) not in SEPARATORS:
        raise DataError(f"{path}: unknown format of judgments; expected {FORMATS}")
    ids = (columns.get("qid", "qid"), columns.get("doc_id", "doc_id"), _QUEPID[1])
    table = read_delimited(path, as_text=(*ids, *_TEXTS, *filter(None, [columns.get("text")])))
    if not set(_QUEPID) <= set(table.column_names) or {"doc_id", "y"} & columns.keys():
        return table
    table = table.filter(pc.is_valid(table["rating"]))
    return table.rename_columns([{"docid": "doc_id", "rating": "y"}.get(name, name) for name in table.column_names])


def _read_workbench(path: Path) -> pa.Table:
    """Read judgments of the Search Relevance Workbench: the body that imports them, or the response with them."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        lists = [hit["_source"] for hit in body["hits"]["hits"]] if "hits" in body else [body]
        rows = [
            {"query": str(of_query["query"]), "doc_id": str(each["docId"]), "y": float(each["rating"])}
            for found in lists
            for of_query in found["judgmentRatings"]
            for each in of_query["ratings"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(
            path,
            0,
            f"not judgments of the Search Relevance Workbench ({error!r}): expected judgmentRatings, each with "
            "query and ratings, which have docId and rating",
        ) from None
    schema = pa.schema([("query", pa.string()), ("doc_id", pa.string()), ("y", pa.float64())])
    return pa.Table.from_pylist(rows, schema)


def agreement(rated: QuerySet, trusted: QuerySet) -> float:
    """Return a weight for ratings that few would sign, such as those of a language model: how they agree with others.

    Of the pairs of documents that `trusted` grades differently for a query that both have, the share that `rated`
    orders alike, minus the share that it orders the other way round, and 0 if that is below 0. Queries are compared by
    their texts.

    Examples
    --------
    >>> asked = {"qid": [1, 1, 1], "doc_id": ["a", "b", "c"], "query_columns": {"text": ["alien"]}}
    >>> people = QuerySet.from_arrays(np.empty((3, 0)), [2, 1, 0], **asked)
    >>> agreement(QuerySet.from_arrays(np.empty((3, 0)), [9, 3, 5], **asked), people)
    0.3333333333333333
    """
    known = dict(map(_grades_of, trusted))
    alike = pairs = 0
    for text, ratings in map(_grades_of, rated):
        both = [(ratings[name], grade) for name, grade in known.get(text, {}).items() if name in ratings]
        for place, (rating, grade) in enumerate(both):
            for other, lower in both[:place]:
                if grade != lower:
                    pairs += 1
                    alike += int(np.sign(rating - other) * np.sign(grade - lower))
    if not pairs:
        raise DataError("no two documents have different grades in both for one query: judge some of its queries")
    return max(alike / pairs, 0.0)


def _grades_of(query: QuerySet) -> tuple[str, dict[str, float]]:
    names = [] if query.doc_id is None else query.doc_id.tolist()
    grades = zip(map(str, names), query.grades.tolist(), strict=True)
    return normalize_text(str(query.query_columns[TEXT][0])), dict(grades)


def _text_column(table: pa.Table, columns: ColumnNames) -> str:
    """Return the column of query texts: the named one, or the first default that exists."""
    return columns.get("text") or next((name for name in _TEXTS if name in table.column_names), _TEXTS[0])


def _id_column(table: pa.Table, columns: ColumnNames) -> str:
    """Return the column of query ids: that of their texts if the table lacks the default one."""
    qid, text = columns.get("qid", "qid"), _text_column(table, columns)
    return text if qid == "qid" and qid not in table.column_names and text in table.column_names else qid


def _check_no_duplicates(judged: QuerySet, path: PathLike) -> None:
    for query in judged:
        documents = [] if query.doc_id is None else query.doc_id.tolist()
        if len(set(documents)) < len(documents):
            duplicate = next(doc_id for doc_id in documents if documents.count(doc_id) > 1)
            raise FileFormatError(
                path, 0, f"document {duplicate!r} is judged twice for query {query.qid[0].item()!r}: keep one judgment"
            )


# --- download the documents of an index day by day, so that an interrupted download resumes where it stopped ----------


TIME = "timestamp"
_JOB = "download.json"


class IndexDownload:
    """The documents of an index as files of JSON lines, one file per day of their ``timestamp``.

    A file is written when its day is complete. Each day is read from a snapshot of its own, so that a download may
    be resumed after any pause; documents that are indexed meanwhile with a time in a finished day are not seen.

    The folder records what is downloaded, and another download is refused there. `since` is the first day (ISO
    8601).
    """

    def __init__(self, engine: Engine, folder: PathLike, since: str | None = None) -> None:
        self.engine = engine
        self.folder = Path(folder)
        try:
            self.since = None if since is None else datetime.fromisoformat(since).date()
        except ValueError:
            raise ParameterError(f"{since!r} is not a date: write it as 2026-10-01") from None

    def write(self, pool: RetryingPool, advance: Callable[[int], None]) -> list[Path]:
        """Download the missing days and return the files of all days."""
        [identity] = pool.map(lambda engine: engine.identity(), [self.engine])
        job = {**identity, "since": None if self.since is None else self.since.isoformat()}
        claim_folder(self.folder, _JOB, job, "download of this index")
        parts = dict(self._parts(pool))
        missing = [name for name in parts if not self._file(name).exists()]
        for count in pool.map(lambda name: self._write_part(name, parts[name]), missing):
            advance(count)
        return [self._file(name) for name in parts]

    def remove(self) -> None:
        """Delete the files, first the one that identifies the download."""
        (self.folder / _JOB).unlink()
        shutil.rmtree(self.folder)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.ndjson"

    def _parts(self, pool: RetryingPool) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name and the query of each day, and of the documents without a time."""
        [bounds] = pool.map(lambda engine: engine.field_bounds(TIME), [self.engine])
        if bounds is not None:
            first, last = (datetime.fromtimestamp(bound / 1000, UTC).date() for bound in bounds)
            day: date = max(first, self.since or first)
            while day <= last:
                following = day + timedelta(days=1)
                limits = {"gte": day.isoformat(), "lt": following.isoformat(), "format": "strict_date"}
                yield day.isoformat(), {"range": {TIME: limits}}
                day = following
        if self.since is None:
            yield "no-time", {"bool": {"must_not": {"exists": {"field": TIME}}}}

    def _write_part(self, name: str, query: dict[str, Any]) -> int:
        count = 0
        with atomic_writer(self._file(name)) as stream:
            for page in self.engine.scan(query, TIME):
                stream.writelines(json.dumps(document, ensure_ascii=False).encode() + b"\n" for document in page)
                count += len(page)
        return count


CandidateSource = Literal["top", "judged"]
UNJUDGED_WEIGHT = 0.05
"""Default weight of a hit without a judgment, if the judgments have weights."""


@dataclass
class LogCounts:
    """Counts of what was logged and what was left out."""

    queries: int = 0
    documents: int = 0
    """Logged queries and documents."""
    empty_queries: int = 0
    """Queries left out because none of their candidates is in the index."""
    absent_documents: int = 0
    """Judged documents left out because they are not in the index."""
    unfound_documents: int = 0
    """Judged documents left out because only the engine's top documents are candidates."""
    unjudged_documents: int = 0
    """Logged candidates without a judgment; their grade is NaN."""
    missing: dict[str, int] = field(default_factory=dict)
    """Number of logged documents without a value, by feature."""

    def add(self, other: LogCounts) -> None:
        """Add the counts of another part."""
        self.queries += other.queries
        self.documents += other.documents
        self.empty_queries += other.empty_queries
        self.absent_documents += other.absent_documents
        self.unfound_documents += other.unfound_documents
        self.unjudged_documents += other.unjudged_documents
        for feature, count in other.missing.items():
            self.missing[feature] = self.missing.get(feature, 0) + count


@dataclass(frozen=True, eq=False)
class _LoggedQuery:
    values: Float32
    doc_id: NDArray[np.str_]
    grade: Float32
    sample_weight: Float32 | None
    counts: LogCounts
    rank: NDArray[np.int64] | None
    """The rank of each document in the engine's own order; None if it was not searched for."""


@dataclass(eq=False, repr=False)
class FeatureLogger:
    """Logs the features of the candidates of judged queries.

    A model should learn from the lists that it will rank: the standing of a candidate, the description of a query and
    the share of relevant candidates all depend on the list. So the default is what `kinrank.serve._search.Searcher`
    ranks, the engine's first hits. Candidates without a judgment are logged without a grade; see `QuerySet.grades`.
    """

    engine: Engine
    """Engine that computes the features."""
    _: KW_ONLY
    candidates: CandidateSource = "top"
    """Documents to log: the engine's first hits, or the judged documents. Not both: their features would tell documents
    that the engine did not return from its hits, and these are all judged, if not all relevant.
    """
    top: int = 100
    """Number of top documents."""
    unjudged_weight: float = UNJUDGED_WEIGHT
    """Weight of hits without a judgment if the judgments have weights, as those from clicks do; 0 leaves these hits out
    of learning and measures.
    """
    timeout: float = 30.0
    """Seconds to wait for a response."""

    def __post_init__(self) -> None:
        if self.candidates not in get_args(CandidateSource):
            raise ParameterError(f"candidates must be 'top' or 'judged', got {self.candidates!r}")
        if self.top < 1:
            raise ParameterError(f"top must be at least 1, got {self.top}")
        if not 0 <= self.unjudged_weight <= 1:
            raise ParameterError(f"unjudged_weight must be between 0 and 1, got {self.unjudged_weight}")

    def log(self, judged: QuerySet, pool: RetryingPool) -> Generator[tuple[QuerySet | None, LogCounts], None, None]:
        """Yield each query with its features, or None if no candidate is in the index, and its counts.

        Queries need document ids, grades and the query column "text", and "vector" if features compare vectors.
        Their features are ignored.
        """
        if TEXT not in judged.query_columns:
            raise DataError(f"the queries have no column {TEXT!r}, which the engine searches for: add it")
        if judged.doc_id is None:
            raise DataError("the judged documents have no ids to find them in the index: pass doc_id=")
        for query, logged in zip(judged, pool.map(self._log_one, judged), strict=True):
            yield (self._with_features(query, logged) if len(logged.doc_id) else None), logged.counts

    def _log_one(self, query: QuerySet) -> _LoggedQuery:
        text = str(query.query_columns[TEXT][0])
        vectors = query.query_columns.get(VECTORS)
        vector = None if vectors is None else vectors[0]
        documents = as_ids([] if query.doc_id is None else query.doc_id, "doc_id").astype(np.str_)
        grade_of: dict[str, float] = dict(zip(documents.tolist(), query.grades.tolist(), strict=True))
        counts = LogCounts()
        doc_ids = list(grade_of)
        engine = self.engine.without_own_texts(text)
        if self.candidates == "top":
            hits = engine.search_complete(text, size=self.top, vector=vector, timeout=self.timeout).doc_id.tolist()
            counts.unfound_documents = len(set(doc_ids).difference(hits))
            doc_ids = hits
        logged = engine.log(text, doc_ids, vector=vector, timeout=self.timeout)
        logged_ids = [doc_id for doc_id, in_index in zip(doc_ids, logged.found.tolist(), strict=True) if in_index]
        values = logged.values[logged.found]
        counts.queries = int(bool(logged_ids))
        counts.empty_queries = int(not logged_ids)
        counts.documents = len(logged_ids)
        counts.absent_documents = len(doc_ids) - len(logged_ids)
        counts.unjudged_documents = sum(doc_id not in grade_of for doc_id in logged_ids)
        missing = np.isnan(values).sum(axis=0).tolist()
        counts.missing = dict(zip(self.engine.feature_names, missing, strict=True))
        grades = np.array([grade_of.get(doc_id, np.nan) for doc_id in logged_ids], dtype=np.float32)
        weights = None
        if query.sample_weight is not None:
            weight_of = dict(zip(documents.tolist(), query.sample_weight.tolist(), strict=True))
            weights = np.array([weight_of.get(doc_id, self.unjudged_weight) for doc_id in logged_ids], dtype=np.float32)
        ranks = np.flatnonzero(logged.found) + 1 if self.candidates == "top" else None
        return _LoggedQuery(values, np.array(logged_ids, dtype=np.str_), grades, weights, counts, ranks)

    def _with_features(self, query: QuerySet, logged: _LoggedQuery) -> QuerySet:
        return QuerySet(
            X=logged.values,
            y=logged.grade,
            offsets=offsets_of([len(logged.doc_id)]),
            qid=query.qid,
            doc_id=logged.doc_id,
            feature_names=self.engine.feature_names,
            query_columns=query.query_columns,
            doc_columns={} if logged.rank is None else {ENGINE_RANK: logged.rank},
            sample_weight=logged.sample_weight,
        )

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that the result depends on."""
        if self.candidates == "judged":
            return {"candidates": self.candidates}
        return {"candidates": self.candidates, "top": self.top, "unjudged_weight": self.unjudged_weight}


# --- a feature log that can be stopped at any time and resumed: finished parts are kept in a folder -------------------


QUERIES_PER_PART = 250


class ResumableLog:
    """A feature log written in parts.

    A part is a fixed slice of the judged queries: its features as Parquet and its counts as JSON. The counts are
    written last, so a part with counts is complete. What the log depends on is stored with the parts, and parts of a
    different log are rejected.

    The output is ``NAME.parquet`` or a folder, and the parts are kept in ``OUT.parts`` until the log is complete.
    """

    def __init__(self, out: PathLike, judged: QuerySet, logger: FeatureLogger) -> None:
        self.out = Path(out)
        self.folder = self.out.with_name(f"{self.out.name}.parts")
        self.judged = judged
        self.logger = logger
        self.n_parts = -(-len(judged) // QUERIES_PER_PART)

    def write(self, pool: RetryingPool, advance: Callable[[int], None]) -> LogCounts:
        """Log the remaining parts, combine all parts into the output and return the total counts."""
        self._open(pool)
        for part in range(self.n_parts):
            queries = self.judged[part * QUERIES_PER_PART : (part + 1) * QUERIES_PER_PART]
            if self._counts_file(part).exists():
                advance(len(queries))
            else:
                self._write_part(part, queries, pool, advance)
        total = LogCounts()
        for part in range(self.n_parts):
            total.add(LogCounts(**json.loads(self._counts_file(part).read_text())))
        if not total.documents:
            self._remove()  # so that the same command works once the judgments or the index are corrected
            raise DataError(
                f"none of the {total.absent_documents:,} candidates is in the index: check that the judgments use the "
                "document ids of the index"
            )
        self._combine()
        self._remove()
        return total

    def _open(self, pool: RetryingPool) -> None:
        [identity] = pool.map(lambda engine: engine.identity(), [self.logger.engine])
        job = {
            **identity,
            "features": list(self.logger.engine.feature_names),
            "settings": self.logger.settings,
            "judgments": self.judged.fingerprint(),
            "queries_per_part": QUERIES_PER_PART,
        }
        if self.logger.engine.feature_set is not None:
            job["definitions"] = self.logger.engine.feature_set.fingerprint
        if not self._log_file.exists():
            for file in self.folder.glob("*part-*"):  # of a log whose removal was interrupted
                file.unlink()
        claim_folder(self.folder, self._log_file.name, job, "log")

    def _remove(self) -> None:
        # First the file that identifies the log, so that parts left by an interruption are not used again.
        self._log_file.unlink()
        shutil.rmtree(self.folder)

    def _write_part(self, part: int, queries: QuerySet, pool: RetryingPool, advance: Callable[[int], None]) -> None:
        counts = LogCounts()
        logged = []
        with closing(self.logger.log(queries, pool)) as results:  # stops the pool if interrupted
            for query, query_counts in results:
                counts.add(query_counts)
                if query is not None:
                    logged.append(query)
                advance(1)
        if logged:
            write_parquet(QuerySet.concat(logged), self._part_file(part))
        write_json(asdict(counts), self._counts_file(part))

    def _combine(self) -> None:
        if self.out.suffix != ".parquet":
            write_folder(self._parts(), self.out)
            return
        parts = (part.to_table() for part in self._parts())
        first = next(parts)
        with atomic_writer(self.out) as stream, pq.ParquetWriter(stream, first.schema, compression="zstd") as writer:
            writer.write_table(first)
            for part in parts:
                writer.write_table(part)

    def _parts(self) -> Iterator[QuerySet]:
        files = map(self._part_file, range(self.n_parts))
        return (read_parquet(file) for file in files if file.exists())

    @property
    def _log_file(self) -> Path:
        return self.folder / "log.json"

    def _part_file(self, part: int) -> Path:
        return self.folder / f"part-{part:06}.parquet"

    def _counts_file(self, part: int) -> Path:
        return self.folder / f"part-{part:06}.json"
