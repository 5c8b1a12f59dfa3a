from __future__ import annotations

import hashlib
import io
import json
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinrank import folder
from kinrank.errors import DamagedFolderError, ForeignFolderError, NewerFormatError, StoreError

N_WRITES, N_READS = 100, 1_000
META = {"feature_names": ["BM25", "größe", 'a "quoted" name'], "alpha": 0.1, "none": None, "control": "\x01\n"}
ARRAYS = {
    "X": np.arange(12, dtype=np.float32).reshape(3, 4),
    "qid": np.array(["a", "b", "ü"]),
    "column.empty": np.empty((0, 2), dtype=np.int64),
}
NAMES = [folder.MANIFEST, *(folder.file_name(name) for name in ARRAYS)]


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("folder") / "intact"
    folder.write(path, "queries", META, ARRAYS)
    return path


@pytest.fixture
def copy(intact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(intact, tmp_path / "copy"))


def file_of(path: Path, name: str) -> Path:
    """Return a file of a folder by its name."""
    [file] = path.rglob(name)
    return file


def contents(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def one_bit_flipped(raw: bytes) -> Iterator[bytes]:
    """Yield a copy for every byte, with one of its bits flipped."""
    for position, byte in enumerate(raw):
        yield raw[:position] + bytes([byte ^ 1 << position % 8]) + raw[position + 1 :]


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change the manifest and update its checksum, as another program would."""
    manifest = json.loads((path / folder.MANIFEST).read_bytes())
    change(manifest)
    manifest["sha256"] = folder._checksum(manifest)
    (path / folder.MANIFEST).write_bytes(folder._dump(manifest))


@pytest.mark.parametrize("verify", [True, False])
def test_written_folder_reads_back(intact, verify):
    meta, arrays = folder.read(intact, "queries", verify=verify)
    assert meta == META
    assert arrays.keys() == ARRAYS.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, ARRAYS[name], strict=True)


def test_arrays_are_memory_mapped_and_read_only(intact):
    _, arrays = folder.read(intact, "queries")
    assert isinstance(arrays["X"], np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        arrays["X"][0, 0] = 1


@given(data=st.data())
def test_any_changed_byte_raises(intact, tmp_path_factory, data):
    path = tmp_path_factory.mktemp("changed") / "f"
    shutil.copytree(intact, path)
    file = file_of(path, data.draw(st.sampled_from(NAMES)))
    raw = bytearray(file.read_bytes())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    file.write_bytes(raw)
    with pytest.raises(StoreError, match=r"changed since|cannot be read as JSON|not a kinrank|format|holds '"):
        folder.read(path, "queries")


def test_every_changed_byte_of_the_manifest_raises(copy):
    file = copy / folder.MANIFEST
    for damaged in one_bit_flipped(file.read_bytes()):
        file.write_bytes(damaged)
        with pytest.raises(StoreError, match=r"manifest\.json|format"):
            folder.read(copy, "queries", verify=False)


@pytest.mark.parametrize("name", NAMES[1:])
def test_damaged_array_header_raises_only_damaged_folder_error(copy, name):
    # Without checksums a changed number is not detected, but a header that cannot be parsed must raise our error.
    file = file_of(copy, name)
    raw = file.read_bytes()
    for damaged in one_bit_flipped(raw[:128]):
        file.write_bytes(damaged + raw[128:])
        try:
            folder.read(copy, "queries", verify=False)
        except DamagedFolderError as error:
            assert name in str(error)  # noqa: PT017


@given(data=st.data())
@pytest.mark.parametrize("verify", [True, False])
def test_truncated_or_extended_file_raises(intact, tmp_path_factory, verify, data):
    path = tmp_path_factory.mktemp("truncated") / "f"
    shutil.copytree(intact, path)
    file = file_of(path, data.draw(st.sampled_from(NAMES)))
    raw = file.read_bytes()
    cut = raw[: data.draw(st.integers(0, len(raw) - 1))]
    file.write_bytes(data.draw(st.sampled_from([cut, raw + b"\0", raw + b" "])))
    with pytest.raises(DamagedFolderError, match=r"bytes, expected|changed since|cannot be read as JSON"):
        folder.read(path, "queries", verify=verify)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_missing_file_raises(copy, name, verify):
    file_of(copy, name).unlink()
    with pytest.raises(StoreError, match=r"is missing|no manifest\.json"):
        folder.read(copy, "queries", verify=verify)


def test_swapped_files_raise(copy):
    arrays = file_of(copy, "X.npy").parent
    (arrays / "X.npy").rename(copy / "other")
    (arrays / "qid.npy").rename(arrays / "X.npy")
    (copy / "other").rename(arrays / "qid.npy")
    with pytest.raises(DamagedFolderError, match=r"X\.npy has"):
        folder.read(copy, "queries")


def test_newer_format_raises(copy):
    rewrite(copy, lambda manifest: manifest.update(format=folder.FORMAT + 1))
    with pytest.raises(NewerFormatError, match="upgrade kinrank"):
        folder.read(copy, "queries")


@pytest.mark.parametrize("version", [0, -1, "1", None, 1.5, True])
def test_unknown_format_raises(copy, version):
    rewrite(copy, lambda manifest: manifest.update(format=version))
    with pytest.raises(ForeignFolderError, match="format"):
        folder.read(copy, "queries")


def test_other_kind_raises(intact):
    with pytest.raises(ForeignFolderError, match="holds 'queries', expected 'model'"):
        folder.read(intact, "model")


@pytest.mark.parametrize("manifest", [b"[]", b"{}", b"null", b'{"kind": "queries"}', b'"' + b"x" * 10 + b'"'])
def test_foreign_manifest_raises(tmp_path, manifest):
    (tmp_path / folder.MANIFEST).write_bytes(manifest)
    with pytest.raises(ForeignFolderError, match="not a kinrank manifest"):
        folder.read(tmp_path, "queries")


@pytest.mark.parametrize("text", [r'"\ud800"', "[" * 100_000, "1" * 10_000, "NaN"])
def test_malicious_manifest_raises(tmp_path, text):
    raw = f'{{"kind": {text}, "format": 2, "meta": {{}}, "arrays": {{}}, "sha256": ""}}'
    (tmp_path / folder.MANIFEST).write_text(raw)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        folder.read(tmp_path, "queries")


@pytest.mark.parametrize("name", ["../X", "a/b", "", ".hidden", "a\0", "a\n"])
def test_name_outside_the_folder_raises(copy, name):
    with pytest.raises(StoreError, match="is not a valid file name"):
        folder.write(copy.parent / "new", "queries", {}, {name: np.zeros(1)})
    rewrite(copy, lambda manifest: manifest["arrays"].update({name: manifest["arrays"]["X"]}))
    with pytest.raises(StoreError, match="is not a valid file name"):
        folder.read(copy, "queries")


def test_pickled_objects_raise(copy):
    raw = io.BytesIO()
    np.save(raw, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    file_of(copy, "X.npy").write_bytes(raw.getvalue())
    entry = {"bytes": len(raw.getvalue()), "sha256": hashlib.sha256(raw.getvalue()).hexdigest()}
    rewrite(copy, lambda manifest: manifest["arrays"].update(X=entry))
    with pytest.raises(DamagedFolderError, match=r"X\.npy is not an array"):
        folder.read(copy, "queries")


@pytest.mark.parametrize("path", ["nowhere", "file"])
def test_missing_folder_raises(tmp_path, path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(ForeignFolderError, match=r"does not exist|is a file|no manifest\.json"):
        folder.read(tmp_path / path, "queries")


def test_write_replaces_a_folder_of_the_same_kind(copy):
    folder.write(copy, "queries", {"new": True}, {"X": np.zeros(2)})
    assert folder.read(copy, "queries")[0] == {"new": True}
    assert sorted(contents(copy)) == [str(file_of(copy, "X.npy").relative_to(copy)), folder.MANIFEST]
    assert [file.name for file in copy.parent.iterdir()] == ["copy"]


def test_write_to_an_empty_or_new_folder(tmp_path):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "deep" / "new"):
        folder.write(path, "queries", {}, ARRAYS)
        assert folder.read(path, "queries")[1].keys() == ARRAYS.keys()


def test_write_never_replaces_other_folders_or_files(copy, tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("text")
    (tmp_path / "file").write_text("text")
    before = contents(tmp_path)
    for path, kind in ((tmp_path / "precious", "queries"), (tmp_path / "file", "queries"), (copy, "model")):
        with pytest.raises(ForeignFolderError, match=r"does not exist|is a file|no manifest\.json|holds 'queries'"):
            folder.write(path, kind, {}, ARRAYS)
    assert contents(tmp_path) == before


def test_failed_write_keeps_the_old_folder(copy):
    before = contents(copy.parent)
    with pytest.raises(ValueError, match=r"[Oo]bject arrays cannot be saved"):
        folder.write(copy, "queries", {}, {"X": np.zeros(2), "bad": np.array([{}], dtype=object)})
    with pytest.raises(TypeError, match="not JSON serializable"):
        folder.write(copy, "queries", {"bad": object()}, {"X": np.zeros(2)})
    assert contents(copy.parent) == before


def test_failed_first_write_leaves_nothing(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        folder.write(tmp_path / "new", "queries", {"bad": object()}, ARRAYS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", ["X.npy", "arrays", folder.MANIFEST])
def test_failed_rename_keeps_the_old_folder(copy, monkeypatch, failing):
    before = contents(copy)
    rename = Path.rename

    def rename_unless(self: Path, target: Path) -> Path:
        if self.name.startswith(failing):
            raise OSError("no space left on device")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_unless)
    with pytest.raises(OSError, match="no space left"):
        folder.write(copy, "queries", {"new": True}, {"X": np.zeros(2)})
    monkeypatch.undo()
    assert folder.read(copy, "queries")[0] == META
    assert before.items() <= contents(copy).items()
    assert [file.name for file in copy.parent.iterdir()] == ["copy"]
    folder.write(copy, "queries", {"new": True}, {"X": np.ones(2)})
    assert len(contents(copy)) == 2  # what the failed write left is deleted


@pytest.mark.parametrize("name", ["arrays-../../secret", "..", "/etc", "arrays-0123456789ab/../..", None])
def test_subfolder_outside_the_folder_raises(copy, name):
    rewrite(copy, lambda manifest: manifest.update(folder=name))
    with pytest.raises(ForeignFolderError, match="not a kinrank manifest"):
        folder.read(copy, "queries")


def test_writing_again_repairs_damaged_arrays(copy):
    file_of(copy, "X.npy").write_bytes(b"damaged")
    folder.write(copy, "queries", META, ARRAYS)
    np.testing.assert_array_equal(folder.read(copy, "queries")[1]["X"], ARRAYS["X"])


def test_a_folder_is_restored_by_moving_a_backup_over_its_files(copy, tmp_path):
    backup = tmp_path / "backup"
    shutil.copytree(copy, backup)
    folder.write(copy, "queries", {"new": True}, {"X": np.zeros(2)})
    for item in sorted(backup.iterdir(), key=lambda each: each.name == folder.MANIFEST):
        item.rename(copy / item.name)
    assert folder.read(copy, "queries")[0] == META


def test_readers_see_the_arrays_of_one_version(tmp_path):
    """The issue that two renames of folders had: a reader between them found arrays of two versions, or none."""
    path, reads, wrong = tmp_path / "folder", Counter(right=0, mixed=0, failed=0), list[str]()
    versions = [{name: np.full(50, number) for name in "abcdefgh"} for number in range(N_WRITES)]
    folder.write(path, "queries", {"number": 0}, versions[0])
    done = threading.Event()

    def read() -> None:
        while not done.is_set() or sum(reads.values()) < N_READS:
            try:
                meta, arrays = folder.read(path, "queries", verify=sum(reads.values()) % 2 == 0)
                found = {int(value) for array in arrays.values() for value in array}
                reads["mixed" if found != {meta["number"]} else "right"] += 1
            except StoreError as error:
                reads["failed"] += 1
                wrong.append(str(error))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for number, arrays in enumerate(versions):
        folder.write(path, "queries", {"number": number}, arrays)
    done.set()
    for reader in readers:
        reader.join()
    assert reads["mixed"] == reads["failed"] == 0, wrong[:3]
    assert reads["right"] >= N_READS
    assert len(contents(path)) == 9
