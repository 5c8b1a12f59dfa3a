"""LETOR 4.0: the collections MQ2007 and MQ2008 of Microsoft Research."""

from __future__ import annotations

import hashlib
import lzma
import os
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path
from typing import NamedTuple

from kinrank.data.files import atomic_writer
from kinrank.data.letor import read_letor
from kinrank.data.queryset import QuerySet
from kinrank.datasets.download import RemoteFile, get_data_home, require_file
from kinrank.errors import DownloadError, ParameterError

PAGE = "https://www.microsoft.com/en-us/research/project/letor-learning-rank-information-retrieval/letor-4-0/"
# Microsoft's own links lead to a folder of OneDrive that programs cannot download from. These are the mirrors that
# PaddlePaddle and XGBoost use. The second states no checksum, so the parts are checked instead.
ARCHIVES = {
    "MQ2007": RemoteFile(
        "MQ2007.rar",
        [
            "http://www.bigdatalab.ac.cn/benchmark/upload/download_source/"
            "7b6dbbe2-842c-11e4-a536-bcaec51b9163_MQ2007.rar"
        ],
        "md5:7be1640ae95c6408dab0ae7207bdc706",
    ),
    "MQ2008": RemoteFile("MQ2008.zip", ["https://s3-us-west-2.amazonaws.com/xgboost-examples/MQ2008.zip"]),
}
# SHA-256 of S1 to S5, lines joined by one line feed and without whitespace at their ends.
PARTS = {
    "MQ2007": (
        "630b5c9f87605e0a9cf9bc5b255455b463fc26d68cc5e22e504732ca6b80737b",
        "437468b1344f8caab534a2120f99db21f0305fdce0631da324dc194f4e34aad2",
        "1413802e8c04d128767dccbc3f63b6727910d72df10d2b72807c17bfa928302c",
        "ca472826230d3e346b6860701a6d7547bd602565e0a3561d193801ed50630848",
        "da0ab97f8eec79f7c2328ed093cbc205ecb6d5c9b816203ce7b397d4468187db",
    ),
    "MQ2008": (
        "301b77bc4a553befd8cad4d08f29bd57b03a0e4b26c12439a5c55fb4a7de34d1",
        "b8f96b576291254d1300fefded883349f8df3ec172628568061745d58a07d658",
        "7228ae74a4b081e476227531009dcd7a2979e3b745458deda9e5f9fa9a91db5a",
        "d35e5ca78fca49d89050fd0e18df4e7e4b8fdbabb5ab0450996214a6b8b001f3",
        "b2e1b851469e10ff3556daeaa95001d7e80229d3420486a63f6500b474af6858",
    ),
}
_UNPACKERS = (("bsdtar", "-xf"), ("unrar", "x", "-inul"), ("7z", "x"), ("unar",))


class LetorFold(NamedTuple):
    """The queries of an official fold."""

    train: QuerySet
    validation: QuerySet
    test: QuerySet


def fetch_letor(
    name: str,
    *,
    fold: int = 1,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    n_retries: int = 3,
    delay: float = 1.0,
) -> LetorFold:
    """Return an official fold of a LETOR 4.0 collection, with 46 features normalized by query and grades 0 to 2.

    It is downloaded on first use, for research only: see https://arxiv.org/abs/1306.2597. MQ2007 is a .rar archive,
    which needs one of the programs bsdtar, unrar, 7z and unar. If the mirror does not answer, download the archive
    from Microsoft's page by hand and put it, or its files S1.txt to S5.txt, into ``letor/NAME`` of the data home.

    Parameters
    ----------
    name
        "MQ2007" (1,692 queries) or "MQ2008" (784 queries).
    fold
        Fold 1 to 5 trains on three of five parts, validates on the next and tests on the last.
    data_home
        Folder of downloaded data sets, see `get_data_home`.
    download_if_missing
        Whether to download missing files. If not, they raise `kinrank.errors.DownloadError`.
    n_retries, delay
        How often to repeat a failed download, and the seconds before the first retry.
    """
    if name not in ARCHIVES:
        raise ParameterError(f"name must be one of {', '.join(ARCHIVES)}, got {name!r}")
    if fold not in range(1, 6):
        raise ParameterError(f"fold must be 1 to 5, got {fold!r}")
    folder = get_data_home(data_home) / "letor" / name
    files = [folder / f"S{part}.txt.xz" for part in range(1, 6)]
    if not all(file.is_file() for file in files):
        _make_parts(name, folder, files, download_if_missing, n_retries, delay)
    parts = [read_letor(files[(fold - 1 + step) % 5], n_features=46) for step in range(5)]
    return LetorFold(QuerySet.concat(parts[:3]), parts[3], parts[4])


def _make_parts(
    name: str, folder: Path, files: list[Path], download_if_missing: bool, n_retries: int, delay: float
) -> None:
    """Write the five parts, from files that are in the folder already or from the archive."""
    texts = [_own_text(folder, part) for part in range(1, 6)]
    if any(text is None for text in texts):
        own = [file for suffix in (".rar", ".zip", ".7z") if (file := folder / f"{name}{suffix}").is_file()]
        try:
            archive = (
                own[0]
                if own
                else require_file(
                    ARCHIVES[name], folder, download_if_missing=download_if_missing, n_retries=n_retries, delay=delay
                )
            )
        except DownloadError as error:
            raise DownloadError(f"{error}. Download {name} from {PAGE} by hand and put it into {folder}") from None
        with tempfile.TemporaryDirectory() as unpacked:
            _unpack(archive, Path(unpacked))
            texts = [_unpacked_text(Path(unpacked), part) for part in range(1, 6)]
    for file, text, expected in zip(files, texts, PARTS[name], strict=True):
        lines = [line.rstrip() for line in (text or b"").splitlines()]
        if hashlib.sha256(b"\n".join(lines)).hexdigest() != expected:
            raise DownloadError(f"{name}, {file.name}: not as published (QueryLevelNorm): get it from {PAGE}")
        with atomic_writer(file) as stream:
            stream.write(b"\n".join(lines) + b"\n")


def _own_text(folder: Path, part: int) -> bytes | None:
    """Return a part that someone put into the folder."""
    packed, plain = folder / f"S{part}.txt.xz", folder / f"S{part}.txt"
    if packed.is_file():
        return lzma.decompress(packed.read_bytes())
    return plain.read_bytes() if plain.is_file() else None


def _unpacked_text(folder: Path, part: int) -> bytes | None:
    """Return a part from an archive: its own file, or the test queries of the fold that tests on it."""
    found = [*folder.rglob(f"S{part}.txt"), *folder.rglob(f"Fold{part % 5 + 1}/test.txt")]
    return found[0].read_bytes() if found else None


def _unpack(archive: Path, folder: Path) -> None:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as files:
            files.extractall(folder)
        return
    for program, *options in _UNPACKERS:
        if path := shutil.which(program):
            done = subprocess.run([path, *options, str(archive.resolve())], cwd=folder, capture_output=True)  # noqa: S603
            if done.returncode == 0:
                return
    programs = ", ".join(program for program, *_ in _UNPACKERS)
    raise DownloadError(f"{archive} cannot be unpacked: install one of {programs}, or put S1.txt to S5.txt next to it")
