"""Structured logs: one JSON object a line on stderr, written by a thread of its own.

A reader that does not keep up, or a full disk, costs lines, never an answer; how many were lost is logged when there is
room again. No query text, feature or key is ever logged.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections import deque
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

_PAUSE = 0.05  # seconds between two looks
_MOST = 20_000  # lines that may wait; the oldest are dropped


class JsonLog:
    """Writes events in the background.

    Parameters
    ----------
    stream
        Where to; stderr where not given.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._waiting: deque[tuple[datetime, dict[str, Any]]] = deque(maxlen=_MOST)
        self._dropped = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, event: str, **fields: Any) -> None:
        """An event and what is known of it."""
        if len(self._waiting) == _MOST:
            self._dropped += 1
        self._waiting.append((datetime.now(UTC), {"event": event, **fields}))

    def close(self) -> None:
        """Write what waits."""
        self._stop.set()
        self._thread.join(timeout=2.0)

    def _run(self) -> None:
        last = False
        while not last:
            last = self._stop.wait(_PAUSE)
            some = [self._waiting.popleft() for _ in range(len(self._waiting))]
            dropped = self._dropped
            if some and dropped:
                some.append((datetime.now(UTC), {"event": "dropped", "lines": dropped}))
            try:
                self._write(some)
            except Exception:  # a full disk, a pipe without a reader: there may be room again at the next look
                self._dropped += len(some) - bool(dropped)
            else:
                self._dropped -= dropped if some else 0

    def _write(self, some: list[tuple[datetime, dict[str, Any]]]) -> None:
        if some:
            lines = [msgspec.json.encode({"time": time, **fields}).decode() + "\n" for time, fields in some]
            self._stream.write("".join(lines))
            self._stream.flush()


class LogHandler(logging.Handler):
    """What libraries log, as events."""

    def __init__(self, log: JsonLog) -> None:
        super().__init__(logging.INFO)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One record, one event; a traceback goes with it."""
        trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
        self._log.write(
            "server", level=record.levelname.lower(), message=record.getMessage(), **({"trace": trace} if trace else {})
        )
