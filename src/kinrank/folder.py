"""A folder of arrays: one manifest, one ``.npy`` file per array, memory-mapped, written atomically.

Both judged queries and models are kept this way. There is no pickle anywhere, so a folder from a stranger can
be wrong but cannot run code. The manifest carries the SHA-256 of every file and of itself: any changed byte is
found before anything is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
    """Write a folder so that readers see the old one or the new one, never a part.

    Parameters
    ----------
    path
        The folder; one of the same kind already there is replaced, anything else is refused.
    kind
        What it holds: ``"queries"`` or ``"model"``.
    meta
        Whatever JSON can hold.
    arrays
        Name to array; object arrays are refused.
    """
    with replacing(path, kind) as staging:
        for name, array in arrays.items():
            np.save(staging / file_name(name), np.asarray(array), allow_pickle=False)
        seal(staging, kind, meta, list(arrays))


def read(
    path: str | os.PathLike[str], kind: str, *, verify: bool = True
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Open a folder: its meta data, and its arrays memory-mapped read-only.

    Parameters
    ----------
    path
        The folder.
    kind
        What it must hold.
    verify
        Compare every file with its SHA-256. Without it only sizes are compared, which is what opening
        gigabytes of judged queries in a moment takes.

    Raises
    ------
    ForeignFolderError, NewerFormatError, DamagedFolderError
        Where the folder is not one of ours, is from a newer kinrank, or has changed since it was written.
    """
    folder = Path(path)
    manifest = _read_manifest(folder, kind)
    arrays = {}
    for name, entry in manifest["arrays"].items():
        file = folder / file_name(name)
        if not file.is_file():
            raise DamagedFolderError(
                f"{folder}: {file.name} is missing; restore the folder from a copy or write it again"
            )
        if file.stat().st_size != entry["bytes"]:
            raise DamagedFolderError(
                f"{folder}: {file.name} has {file.stat().st_size} bytes, the manifest says {entry['bytes']}; "
                "restore the folder from a copy or write it again"
            )
        if verify and _sha256(file) != entry["sha256"]:
            raise DamagedFolderError(
                f"{folder}: {file.name} has changed since it was written (SHA-256 differs); "
                "restore the folder from a copy or write it again"
            )
        arrays[name] = _map(folder, file)
    return manifest["meta"], arrays


@contextmanager
def replacing(path: str | os.PathLike[str], kind: str) -> Iterator[Path]:
    """Yield a new folder beside `path` that takes its place when the block ends well, and is gone when not.

    A folder of the same kind is replaced by two renames; a crash between them leaves both the old and the
    new folder complete beside `path`.
    """
    target = Path(path).resolve()  # a link stays, what it points to is replaced
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        _read_manifest(target, kind)  # refuses to replace what is not ours
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


def seal(folder: Path, kind: str, meta: dict[str, Any], names: list[str]) -> None:
    """Write the manifest of the arrays that lie in `folder`."""
    arrays = {}
    for name in names:
        file = folder / file_name(name)
        arrays[name] = {"bytes": file.stat().st_size, "sha256": _sha256(file)}
    manifest: dict[str, Any] = {"kind": kind, "format": FORMAT, "meta": meta, "arrays": arrays}
    manifest["sha256"] = _seal_of(manifest)
    (folder / MANIFEST).write_bytes(_dump(manifest))


def file_name(name: str) -> str:
    """The file of an array; names that could leave the folder are refused."""
    if not _NAME.match(name):
        raise StoreError(f"array name {name!r} cannot be a file name: use letters, digits, '_', '-' and '.'")
    return f"{name}.npy"


def _read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    file = folder / MANIFEST
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "is not there"
        raise ForeignFolderError(f"{folder}: {found}; expected a folder that kinrank has written")
    if not file.is_file():
        raise ForeignFolderError(f"{folder}: no {MANIFEST} in it, so it is not a kinrank {kind} folder")
    raw = file.read_bytes()
    try:
        manifest = json.loads(raw)
        # Comparing the bytes with our own way of writing them also catches a change that JSON does not see.
        ours = raw == _dump(manifest)
    except (ValueError, RecursionError) as error:
        raise DamagedFolderError(f"{file}: not readable as JSON ({error}); restore it from a copy") from None
    if not isinstance(manifest, dict) or not {"kind", "format", "meta", "arrays", "sha256"} <= manifest.keys():
        raise ForeignFolderError(f"{file}: not a kinrank manifest")
    if type(manifest["format"]) is not int or manifest["format"] < 1:
        raise ForeignFolderError(f"{file}: format {manifest['format']!r} is none that kinrank has ever written")
    if manifest["format"] > FORMAT:
        raise NewerFormatError(
            f"{folder}: format {manifest['format']}, this kinrank reads up to {FORMAT}: upgrade kinrank"
        )
    if manifest["sha256"] != _seal_of(manifest) or not ours:
        raise DamagedFolderError(f"{file}: has changed since it was written; restore it from a copy")
    if manifest["kind"] != kind:
        raise ForeignFolderError(f"{folder}: holds a {manifest['kind']!r}, a {kind!r} was expected")
    return manifest


def _map(folder: Path, file: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(file, mmap_mode="r", allow_pickle=False)
    except Exception:
        # A memory map cannot be empty; an array can. A damaged header raises whatever its parser does, from
        # SyntaxError to tokenize.TokenError, so no narrower class will do.
        try:
            array = np.load(file, allow_pickle=False)
        except Exception as error:
            raise DamagedFolderError(f"{folder}: {file.name} is not an array ({error})") from None
    return array


def _seal_of(manifest: dict[str, Any]) -> str:
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
