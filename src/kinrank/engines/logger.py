"""Log the features of judged queries from an engine, in parts that an interrupted log resumes from."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import KW_ONLY, asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kinrank.arrays import Float32
from kinrank.data.columns import as_ids
from kinrank.data.folder_format import write_folder
from kinrank.data.grouping import offsets_of
from kinrank.data.jobs import claim_folder
from kinrank.data.parquet import read_parquet, write_parquet
from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike, atomic_writer, write_json
from kinrank.data.texts import TEXT
from kinrank.data.vectors import VECTORS
from kinrank.engines.base import Engine
from kinrank.engines.retry import RetryingPool
from kinrank.errors import DataError, ParameterError

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


@dataclass(eq=False, repr=False)
class FeatureLogger:
    """Logs the features of the candidates of judged queries.

    A model should learn from the lists that it will rank: the standing of a candidate, the description of a query and
    the share of relevant candidates all depend on the list. So the default is what `kinrank.serve.search.Searcher`
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

        Parameters
        ----------
        judged
            Queries with document ids, grades and the query column "text", and "vector" if features compare vectors.
            Their features are ignored.
        pool
            Pool that sends the requests.
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
        if self.candidates == "top":
            hits = self.engine.search_complete(text, size=self.top, vector=vector, timeout=self.timeout).doc_id.tolist()
            counts.unfound_documents = len(set(doc_ids).difference(hits))
            doc_ids = hits
        logged = self.engine.log(text, doc_ids, vector=vector, timeout=self.timeout)
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
        return _LoggedQuery(values, np.array(logged_ids, dtype=np.str_), grades, weights, counts)

    def _with_features(self, query: QuerySet, logged: _LoggedQuery) -> QuerySet:
        return QuerySet(
            X=logged.values,
            y=logged.grade,
            offsets=offsets_of([len(logged.doc_id)]),
            qid=query.qid,
            doc_id=logged.doc_id,
            feature_names=self.engine.feature_names,
            query_columns=query.query_columns,
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

    Parameters
    ----------
    out
        Output: ``NAME.parquet`` or a folder. The parts are kept in ``OUT.parts`` until the log is complete.
    judged
        Queries to log.
    logger
        Logger of their features.
    """

    def __init__(self, out: PathLike, judged: QuerySet, logger: FeatureLogger) -> None:
        self.out = Path(out)
        self.folder = self.out.with_name(f"{self.out.name}.parts")
        self.judged = judged
        self.logger = logger
        self.n_parts = -(-len(judged) // QUERIES_PER_PART)

    def write(self, pool: RetryingPool, advance: Callable[[int], None]) -> LogCounts:
        """Log the remaining parts, combine all parts into the output and return the total counts.

        Parameters
        ----------
        pool
            Pool that sends the requests.
        advance
            Called with the number of queries done since the last call.
        """
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
