"""Download the files of public data sets once, checked and whole, into a folder that all programs share."""

from __future__ import annotations

import hashlib
import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kinrank.errors import DownloadError
from kinrank.progress import report_progress

VARIABLE = "KINRANK_DATA"
"""The environment variable with the path of the data home."""
_CHUNK = 1 << 16
_TIMEOUT = 30.0  # seconds without a byte
_AGAIN = (408, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class RemoteFile:
    """A file of a data set."""

    name: str
    """File name in the data home."""
    urls: Sequence[str]
    """Where it is published; the first that answers is used."""
    checksum: str | None = None
    """``"sha256:..."`` or ``"md5:..."`` of the whole file; None if its publisher states none."""


def get_data_home(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of downloaded data sets: `data_home`, ``KINRANK_DATA`` or ``~/kinrank_data``.

    Examples
    --------
    >>> get_data_home("/tmp/collections").as_posix()
    '/tmp/collections'
    """
    return Path(data_home or os.environ.get(VARIABLE) or "~/kinrank_data").expanduser()


def require_file(
    file: RemoteFile,
    folder: Path,
    *,
    download_if_missing: bool = True,
    n_retries: int = 3,
    delay: float = 1.0,
) -> Path:
    """Return the path of a file in `folder`; download it if it is not there.

    It appears under its name only when it is complete and has the right checksum.

    Parameters
    ----------
    file
        The file.
    folder
        Where it belongs; made if necessary.
    download_if_missing
        Whether to download it. If not, a missing file raises `DownloadError`.
    n_retries
        How often to try again, after a failure that may pass, at each of its addresses.
    delay
        Seconds before the first retry; each further one waits twice as long.
    """
    target = folder / file.name
    if target.is_file():
        return target
    if not download_if_missing:
        raise DownloadError(f"{target} is missing: pass download_if_missing=True, or set {VARIABLE}")
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{os.getpid()}.{file.name}.part"
    failures = []
    try:
        for url in file.urls:
            try:
                _download(url, part, file, n_retries, delay)
            except DownloadError as error:
                failures.append(str(error))
                continue
            part.replace(target)
            return target
    finally:
        part.unlink(missing_ok=True)
    raise DownloadError("; ".join(failures))


def _download(url: str, part: Path, file: RemoteFile, n_retries: int, delay: float) -> None:
    """Download to `part` and check it."""
    for attempt in range(n_retries + 1):
        try:
            _receive(url, part, file.name)
            break
        except urllib.error.HTTPError as error:
            error.close()
            if error.code not in _AGAIN or attempt == n_retries:
                raise DownloadError(f"{url}: the server answers {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:  # refused, reset, timed out, cut off
            if attempt == n_retries:
                raise DownloadError(f"{url}: the download fails ({error!r}), {attempt + 1} times") from None
        time.sleep(delay * 2**attempt)
    if file.checksum is not None:
        kind, _, expected = file.checksum.partition(":")
        with part.open("rb") as stream:
            found = hashlib.file_digest(stream, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
        if found != expected:
            raise DownloadError(f"{url}: the file is not the published one: its {kind} is {found}, not {expected}")


def _receive(url: str, part: Path, name: str) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT) as response, part.open("wb") as stream:  # noqa: S310 - our own addresses
        total = int(response.headers.get("Content-Length") or 0)
        done = 0
        while chunk := response.read(_CHUNK):
            stream.write(chunk)
            done += len(chunk)
            report_progress(f"download {name}", done, total or done)
    if done < total:
        raise http.client.IncompleteRead(b"", total - done)
