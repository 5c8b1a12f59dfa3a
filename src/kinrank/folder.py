"""Folders of arrays: a manifest and one ``.npy`` file per array, memory-mapped and written atomically.

::

    manifest.json              what the folder holds, and which subfolder has its arrays
    arrays-b03d51b9b4c7/       one .npy file per array, never changed

Judged queries and models are stored this way. No file is pickled, so a folder from an untrusted source cannot run
code. The manifest has the SHA-256 of every file and of itself, so that any changed byte is detected. A folder is
replaced by a new subfolder and then by the manifest that names it, in one rename of a file: whoever reads meanwhile has
all of the old arrays or all of the new ones.
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
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.errors import DamagedFolderError, ForeignFolderError, NewerFormatError, StoreError

MANIFEST = "manifest.json"
FORMAT = 2
_SUBFOLDER = re.compile(r"arrays-[0-9a-f]{12}\Z")
_KEYS = {"kind", "format", "meta", "folder", "arrays", "sha256"}
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
    while True:
        manifest = read_manifest(folder, kind)
        try:
            return manifest["meta"], read_arrays(folder / manifest["folder"], manifest, verify=verify, copy=copy)
        except DamagedFolderError:
            if read_manifest(folder, kind) == manifest:  # else it was replaced, and the old arrays were deleted
                raise


def read_arrays(
    place: Path, manifest: dict[str, Any], *, verify: bool = True, copy: bool = False
) -> dict[str, NDArray[Any]]:
    """Return the arrays of a manifest that are in a folder; see `read`."""
    arrays = {}
    for name, entry in manifest["arrays"].items():
        file = place / file_name(name)
        try:
            size = file.stat().st_size
            raw = file.read_bytes() if copy else None
            differs = verify and (_sha256(file) if raw is None else hashlib.sha256(raw).hexdigest()) != entry["sha256"]
        except FileNotFoundError:
            raise DamagedFolderError(
                f"{place}: {file.name} is missing: restore the folder from a backup or write it again"
            ) from None
        if size != entry["bytes"]:
            raise DamagedFolderError(
                f"{place}: {file.name} has {size} bytes, expected {entry['bytes']}: restore the folder from a backup "
                "or write it again"
            )
        if differs:
            raise DamagedFolderError(
                f"{place}: {file.name} has changed since it was written (SHA-256 differs): restore the folder from a "
                "backup or write it again"
            )
        arrays[name] = _map(place, file) if raw is None else _load(place, file.name, io.BytesIO(raw))
    return arrays


@contextmanager
def atomic_folder(path: str | os.PathLike[str], kind: str) -> Iterator[Path]:
    """Yield a temporary folder for arrays and their manifest, which replace those in `path` if the block succeeds.

    It is deleted if the block raises. After a crash, `path` holds what it held before, or all that is new.
    """
    target = Path(path).resolve()  # replaces the content of a link's target, not the link
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        read_manifest(target, kind)  # raises if kinrank did not write it
    target.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".new", dir=target.parent))
    try:
        yield staging
        manifest = read_manifest(staging, kind)
        arrays = staging / manifest["folder"]
        arrays.mkdir()
        for name in manifest["arrays"]:
            file = staging / file_name(name)
            _sync(file)
            file.rename(arrays / file.name)
        _sync(arrays)
        _sync(staging / MANIFEST)
        staging.chmod(0o755)
        try:
            staging.rename(target)
        except OSError:  # there is one already
            if not (target / MANIFEST).is_file():
                raise
            _replace(target, staging, manifest)
        _sync(target.parent)
    finally:
        if staging.exists():
            shutil.rmtree(staging)


def _replace(target: Path, staging: Path, manifest: dict[str, Any]) -> None:
    """Move the arrays and then the manifest of one folder into another one, and delete what that held before."""
    descriptor = os.open(target, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks on folders: there, one program may write
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        arrays = target / manifest["folder"]
        if not _is_intact(arrays, manifest):
            if arrays.exists():
                arrays.rename(staging / "damaged")
            (staging / arrays.name).rename(arrays)
        os.fsync(descriptor)
        (staging / MANIFEST).rename(target / MANIFEST)
        os.fsync(descriptor)
        for other in target.iterdir():
            if other.is_dir() and other != arrays:
                shutil.rmtree(other)
            elif other.name != MANIFEST and other != arrays:
                other.unlink()
    finally:
        os.close(descriptor)


def _is_intact(place: Path, manifest: dict[str, Any]) -> bool:
    try:
        read_arrays(place, manifest)
    except DamagedFolderError:
        return False
    return True


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
    """Write the manifest of the arrays in `folder`, whose subfolder is named by their checksums."""
    arrays = {}
    for name in names:
        file = folder / file_name(name)
        arrays[name] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
    subfolder = f"arrays-{hashlib.sha256(_dump(arrays)).hexdigest()[:12]}"
    manifest: dict[str, Any] = {"kind": kind, "format": FORMAT, "meta": meta, "folder": subfolder, "arrays": arrays}
    manifest["sha256"] = _checksum(manifest)
    (folder / MANIFEST).write_bytes(_dump(manifest))


def file_name(name: str) -> str:
    """Return the file name of an array; raise if the name could refer to a file outside the folder."""
    if not _NAME.match(name):
        raise StoreError(f"array name {name!r} is not a valid file name: use letters, digits, '_', '-' and '.'")
    return f"{name}.npy"


def holds_arrays(name: str) -> bool:
    """Return whether a subfolder of this name holds arrays, of this manifest or of one before or after it."""
    return bool(_SUBFOLDER.match(name))


def arrays_in(folder: Path) -> Path:
    """Return the subfolder that a manifest names, or the folder itself if the manifest cannot be read."""
    try:
        name = str(json.loads((folder / MANIFEST).read_bytes())["folder"])
    except (ValueError, TypeError, KeyError):
        return folder
    return folder / name if holds_arrays(name) else folder


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
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise ForeignFolderError(f"{file} is not a kinrank manifest: choose another folder")
    if type(manifest["format"]) is not int or manifest["format"] < FORMAT:
        raise ForeignFolderError(f"{file}: format {manifest['format']!r} is unknown: choose another folder")
    if manifest["format"] > FORMAT:
        raise NewerFormatError(
            f"{folder} has format {manifest['format']}, this kinrank reads up to {FORMAT}: upgrade kinrank"
        )
    if not manifest.keys() >= _KEYS or not holds_arrays(str(manifest["folder"])):
        raise ForeignFolderError(f"{file} is not a kinrank manifest: choose another folder")
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
