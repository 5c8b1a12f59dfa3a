"""A feature log that can be stopped at any time and resumed: finished parts are kept in a folder."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pyarrow.parquet as pq

from kinrank.data.folder_format import write_folder
from kinrank.data.jobs import claim_folder
from kinrank.data.parquet import read_parquet, write_parquet
from kinrank.data.queryset import QuerySet
from kinrank.data.textfile import PathLike, atomic_writer, write_json
from kinrank.engines.logger import FeatureLogger, LogCounts
from kinrank.engines.retry import RetryingPool
from kinrank.errors import DataError

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
