"""An append-only log of judgments. An acknowledged record survives any crash.

A record is one line: the CRC-32 of the text as eight hex digits, a space, the text, a newline. The text is JSON, which
contains no newline, so a line without a newline was cut off while it was written and was never acknowledged. Several
processes may append and read at the same time; a file lock keeps them apart.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kinrank.errors import DamagedFolderError, NotStoredError

_CHUNK = 1 << 16


class Journal:
    """A file of text lines, each acknowledged only when it is on disk.

    Parameters
    ----------
    path
        The file. It is created if it does not exist.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(Path(folder) / "judgments.log")
    ...     journal.append(["one", "two"])
    ...     texts, end = journal.read()
    ...     journal.append(["three"])
    ...     texts, journal.read(end)[0]
    (['one', 'two'], ['three'])
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        _sync_folder(self.path.parent)

    def append(self, texts: Sequence[str]) -> None:
        """Write all texts or none, and wait until they are on disk.

        Raises
        ------
        NotStoredError
            The disk does not accept them. The file is unchanged.
        """
        record = b"".join(_line(text) for text in texts)
        with self._locked(fcntl.LOCK_EX) as descriptor:
            end = _repair(descriptor)
            try:
                os.lseek(descriptor, end, os.SEEK_SET)
                _write(descriptor, record)
                os.fsync(descriptor)
            except OSError as error:
                os.ftruncate(descriptor, end)
                raise NotStoredError(f"{self.path}: {error.strerror}; nothing was kept, try again") from error

    def read(self, start: int = 0) -> tuple[list[str], int]:
        """Return the texts from position `start` on, and the position after them.

        Raises
        ------
        DamagedFolderError
            A complete line was changed after it was written.
        """
        with self._locked(fcntl.LOCK_SH) as descriptor:
            size = os.fstat(descriptor).st_size
            if size <= start:
                return [], start
            with open(descriptor, "rb", closefd=False) as stream:
                stream.seek(start)
                raw = stream.read(size - start)
        complete = raw[: raw.rfind(b"\n") + 1]
        texts = []
        position = start
        for line in complete.split(b"\n")[:-1]:
            text = line[9:]
            if line[:9] != b"%08x " % zlib.crc32(text):
                raise DamagedFolderError(
                    f"{self.path}: the record at byte {position} has changed since it was written; restore the file "
                    "from a copy, or truncate it there and send the judgments after it again"
                )
            texts.append(text.decode())
            position += len(line) + 1
        return texts, position

    @contextmanager
    def _locked(self, kind: int) -> Iterator[int]:
        descriptor = os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, kind)
            yield descriptor
        finally:
            os.close(descriptor)  # releases the lock, as the end of the process does


def _line(text: str) -> bytes:
    raw = text.encode()
    return b"%08x %s\n" % (zlib.crc32(raw), raw)


def _write(descriptor: int, raw: bytes) -> None:
    rest = memoryview(raw)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _repair(descriptor: int) -> int:
    """Remove an incomplete last line, left by a killed process, and return the end of the file."""
    size = os.fstat(descriptor).st_size
    end = size
    while end:
        start = max(0, end - _CHUNK)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            end = start + newline + 1
            break
        end = start
    if end != size:
        os.ftruncate(descriptor, end)
    return end


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
