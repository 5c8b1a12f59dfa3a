"""Download the documents of an index day by day, so that an interrupted download resumes where it stopped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

from kinrank.data.jobs import claim_folder
from kinrank.data.textfile import PathLike, atomic_writer
from kinrank.engines.base import Engine
from kinrank.engines.retry import RetryingPool
from kinrank.errors import ParameterError

TIME = "timestamp"
_JOB = "download.json"


class IndexDownload:
    """The documents of an index as files of JSON lines, one file per day of their ``timestamp``.

    A file is written when its day is complete. Each day is read from a snapshot of its own, so that a download may
    be resumed after any pause; documents that are indexed meanwhile with a time in a finished day are not seen.

    Parameters
    ----------
    engine
        The index.
    folder
        The folder of the files. It records what is downloaded, and another download is refused there.
    since
        The first day (ISO 8601), or None for all.
    """

    def __init__(self, engine: Engine, folder: PathLike, since: str | None = None) -> None:
        self.engine = engine
        self.folder = Path(folder)
        try:
            self.since = None if since is None else datetime.fromisoformat(since).date()
        except ValueError:
            raise ParameterError(f"{since!r} is not a date: write it as 2026-10-01") from None

    def write(self, pool: RetryingPool, advance: Callable[[int], None]) -> list[Path]:
        """Download the missing days and return the files of all days.

        Parameters
        ----------
        pool
            Retries requests; its number of workers is the number of days read at once.
        advance
            Called with the number of documents just written.
        """
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
