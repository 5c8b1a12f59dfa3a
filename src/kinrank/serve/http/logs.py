"""JSON logs, one object per line, written by a background thread.

If the reader is slow or the disk is full, lines are dropped and requests are not delayed; the number of dropped lines
is logged as soon as lines can be written again. Query texts, features and keys are never logged.
"""

from __future__ import annotations

import logging
import sys
import threading
from contextvars import ContextVar
from datetime import UTC, datetime
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from typing import Any, TextIO

import msgspec

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the request being handled; it is added to every log line."""

TRACE_ID: ContextVar[str | None] = ContextVar("trace_id", default=None)
"""The trace that the request belongs to, if any; it is added to every log line, too."""

REQUEST_FIELDS: ContextVar[dict[str, Any] | None] = ContextVar("request_fields", default=None)
"""Fields of the line that will be logged for the request being handled; see `add_log_fields`."""

_MAX_WAITING = 20_000  # lines
_logger = logging.getLogger("kinrank.serve")


def log_event(event: str, *, error: BaseException | None = None, **fields: Any) -> None:
    """Log an event with its fields and, for an error, the traceback."""
    _logger.log(logging.INFO if error is None else logging.ERROR, event, exc_info=error, extra={"fields": fields})


def add_log_fields(**fields: Any) -> None:
    """Add fields to the line that will be logged for the request being handled, if any."""
    found = REQUEST_FIELDS.get()
    if found is not None:
        found |= fields


class JsonLog:
    """Writes log records as JSON lines in the background.

    Parameters
    ----------
    stream
        Output stream; None means stderr.
    logger
        The logger whose records are written, with those of its children; None means the root logger.
    """

    def __init__(self, stream: TextIO | None = None, logger: logging.Logger | None = None) -> None:
        self._logger = logger or logging.getLogger()
        self._handler = _DroppingQueueHandler(SimpleQueue())
        self._listener = QueueListener(self._handler.queue, _JsonHandler(stream or sys.stderr, self._handler))

    def start(self) -> JsonLog:
        """Start to write records."""
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self._handler)
        self._listener.start()
        return self

    def close(self) -> None:
        """Stop after the waiting lines are written, or after two seconds."""
        self._logger.removeHandler(self._handler)
        stop = threading.Thread(target=self._listener.stop, daemon=True)
        stop.start()
        stop.join(timeout=2.0)


class _DroppingQueueHandler(QueueHandler):
    """Queues records, and drops them while too many are waiting.

    A `SimpleQueue` is reentrant, so that signal handlers can log.
    """

    def __init__(self, queue: SimpleQueue[Any]) -> None:
        super().__init__(queue)
        self._waiting = queue
        self.dropped = 0

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        # Unlike the base class, keep the traceback apart from the message.
        record.msg, record.args = record.getMessage(), None
        record.request_id, record.trace_id = REQUEST_ID.get(), TRACE_ID.get()
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        if self._waiting.qsize() < _MAX_WAITING:
            self._waiting.put_nowait(record)
        else:
            self.dropped += 1


class _JsonHandler(logging.StreamHandler[TextIO]):
    """Writes records as JSON lines, and reports how many were dropped."""

    def __init__(self, stream: TextIO, source: _DroppingQueueHandler) -> None:
        super().__init__(stream)
        self.setFormatter(_JsonFormatter())
        self._source = source
        self._failed = 0
        self._reported = 0

    def emit(self, record: logging.LogRecord) -> None:
        dropped = self._source.dropped + self._failed
        try:
            text = self.format(record) + "\n"
            if dropped > self._reported:
                lines = dropped - self._reported
                text += _encode(time=datetime.now(UTC), pid=record.process, event="dropped", lines=lines) + "\n"
            self.stream.write(text)
            self.flush()
        except Exception:  # a full disk or a closed pipe: the next line may succeed
            self._failed += 1
        else:
            self._reported = dropped


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        extra = vars(record)
        fields: dict[str, Any] = {"time": datetime.fromtimestamp(record.created, UTC), "pid": record.process}
        if "fields" in extra:
            fields |= {"event": record.msg, **extra["fields"]}
        else:  # logged by a library
            fields |= {"event": "server", "level": record.levelname.lower(), "message": record.msg}
        fields |= {name: extra[name] for name in ("request_id", "trace_id") if extra.get(name) is not None}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return _encode(**fields)


def _encode(**fields: Any) -> str:
    return msgspec.json.encode(fields).decode()
