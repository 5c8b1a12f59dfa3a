"""Folders of arrays: a manifest and one ``.npy`` file per array, memory-mapped and written atomically.

Judged queries and models are stored this way. No file is pickled, so a folder from an untrusted source cannot run
code. The manifest has the SHA-256 of every file and of itself, so that any changed byte is detected.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.errors import DamagedFolderError, ForeignFolderError, NewerFormatError, StoreError

MANIFEST = "manifest.json"
FORMAT = 1
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\Z")

Arrays = Mapping[str, NDArray[Any]]


def write(path: str | os.PathLike[str], kind: str, meta: dict[str, Any], arrays: Arrays) -> None:
    """Write a folder atomically: readers see the old one or the new one.

    An existing folder of the same kind is replaced; anything else raises, and so do object arrays.
    """
    with atomic_folder(path, kind) as staging:
        for name, array in arrays.items():
            np.save(staging / file_name(name), np.asarray(array), allow_pickle=False)
        write_manifest(staging, kind, meta, list(arrays))


def read(
    path: str | os.PathLike[str], kind: str, *, verify: bool = True, copy: bool = False
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the metadata of a folder and its arrays, read-only and, unless `copy` is set, memory-mapped.

    Parameters
    ----------
    path
        The folder.
    kind
        What the folder must hold.
    verify
        Compare every file with its SHA-256. False compares sizes only, so that gigabytes open at once.
    copy
        Read the arrays into memory instead of mapping the files, so that a later change of a file has no effect.

    Raises
    ------
    ForeignFolderError, NewerFormatError, DamagedFolderError
        If the folder was not written by kinrank, was written by a newer version, or has changed since.
    """
    folder = Path(path)
    manifest = read_manifest(folder, kind)
    arrays = {}
    for name, entry in manifest["arrays"].items():
        file = folder / file_name(name)
        if not file.is_file():
            raise DamagedFolderError(
                f"{folder}: {file.name} is missing: restore the folder from a backup or write it again"
            )
        if file.stat().st_size != entry["bytes"]:
            raise DamagedFolderError(
                f"{folder}: {file.name} has {file.stat().st_size} bytes, expected {entry['bytes']}: restore the folder "
                "from a backup or write it again"
            )
        raw = file.read_bytes() if copy else None
        if verify and (_sha256(file) if raw is None else hashlib.sha256(raw).hexdigest()) != entry["sha256"]:
            raise DamagedFolderError(
                f"{folder}: {file.name} has changed since it was written (SHA-256 differs): restore the folder from a "
                "backup or write it again"
            )
        arrays[name] = _map(folder, file) if raw is None else _load(folder, file.name, io.BytesIO(raw))
    return manifest["meta"], arrays


@contextmanager
def atomic_folder(path: str | os.PathLike[str], kind: str) -> Iterator[Path]:
    """Yield a temporary folder that replaces `path` if the block succeeds, and is deleted if it raises.

    An existing folder is replaced by two renames; after a crash between them, the old and the new folder are both
    complete, under temporary names next to `path`.
    """
    target = Path(path).resolve()  # replaces the target of a link, not the link
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        read_manifest(target, kind)  # raises if kinrank did not write it
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent))
    try:
        yield staging
        for file in staging.iterdir():
            _sync(file)
        _sync(staging)
        staging.chmod(0o755)
        if target.exists():
            retired = staging.with_suffix(".old")
            target.rename(retired)
            try:
                staging.rename(target)
            except OSError:
                retired.rename(target)
                raise
            shutil.rmtree(retired)
        else:
            staging.rename(target)
        _sync(target.parent)
    finally:
        if staging.exists():
            shutil.rmtree(staging)


OnWait = Callable[[str], None]
"""Called with who holds a folder, before waiting for it."""


@contextmanager
def locked(path: str | os.PathLike[str], on_wait: OnWait = lambda _: None) -> Iterator[None]:
    """Keep other processes from changing a folder within the block, if they ask for the same.

    The lock is a file next to the folder, ``.NAME.lock``, which says who holds it. It ends with the process, and must
    be on a file system whose locks work on all machines that write there.

    `on_wait` is called before waiting.
    """
    target = Path(path).resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    file = target.parent / f".{target.name}.lock"
    while True:
        with open(file, "a+", encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                lock.seek(0)
                on_wait(f"{path} is being written by {lock.read().strip() or 'another process'}: waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_open_at(lock.fileno(), file):  # the one who held it has deleted it: others lock a new one
                continue
            lock.truncate(0)
            lock.write(
                f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            )
            lock.flush()
            try:
                yield
            finally:
                file.unlink(missing_ok=True)
            return


def _is_open_at(descriptor: int, file: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def write_manifest(folder: Path, kind: str, meta: dict[str, Any], names: list[str]) -> None:
    """Write the manifest of the arrays in `folder`."""
    arrays = {}
    for name in names:
        file = folder / file_name(name)
        arrays[name] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
    manifest: dict[str, Any] = {"kind": kind, "format": FORMAT, "meta": meta, "arrays": arrays}
    manifest["sha256"] = _checksum(manifest)
    (folder / MANIFEST).write_bytes(_dump(manifest))


def file_name(name: str) -> str:
    """Return the file name of an array; raise if the name could refer to a file outside the folder."""
    if not _NAME.match(name):
        raise StoreError(f"array name {name!r} is not a valid file name: use letters, digits, '_', '-' and '.'")
    return f"{name}.npy"


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """Return the manifest of a folder, verified against its own checksum; see `read` for what it raises."""
    file = folder / MANIFEST
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise ForeignFolderError(f"{folder} {found}: pass a kinrank {kind} folder")
    if not file.is_file():
        raise ForeignFolderError(
            f"{folder} is not a kinrank {kind} folder, it has no {MANIFEST}: choose another folder"
        )
    raw = file.read_bytes()
    try:
        manifest = json.loads(raw)
        # The bytes must be those that _dump writes: JSON alone misses some changes.
        unchanged = raw == _dump(manifest)
    except (ValueError, RecursionError) as error:
        raise DamagedFolderError(f"{file}: cannot be read as JSON ({error}): restore it from a backup") from None
    if not isinstance(manifest, dict) or not {"kind", "format", "meta", "arrays", "sha256"} <= manifest.keys():
        raise ForeignFolderError(f"{file} is not a kinrank manifest: choose another folder")
    if type(manifest["format"]) is not int or manifest["format"] < 1:
        raise ForeignFolderError(f"{file}: format {manifest['format']!r} is unknown: choose another folder")
    if manifest["format"] > FORMAT:
        raise NewerFormatError(
            f"{folder} has format {manifest['format']}, this kinrank reads up to {FORMAT}: upgrade kinrank"
        )
    if manifest["sha256"] != _checksum(manifest) or not unchanged:
        raise DamagedFolderError(f"{file} has changed since it was written: restore it from a backup")
    if manifest["kind"] != kind:
        raise ForeignFolderError(f"{folder} holds {manifest['kind']!r}, expected {kind!r}: choose another folder")
    return manifest


def _map(folder: Path, file: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception:
        # An empty array cannot be memory-mapped. A damaged header can raise anything from SyntaxError to
        # tokenize.TokenError.
        array = _load(folder, file.name, file)
    return array


def _load(folder: Path, name: str, source: Path | io.BytesIO) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(source, allow_pickle=False)
    except Exception as error:
        raise DamagedFolderError(f"{folder}: {name} is not an array ({error}): write it again") from None
    array.flags.writeable = False  # as mapped arrays are
    return array


def _checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(_dump({k: v for k, v in manifest.items() if k != "sha256"})).hexdigest()


def _dump(manifest: dict[str, Any]) -> bytes:
    return (json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
