from __future__ import annotations

from pathlib import Path

import pytest

from kinrank.errors import DataError, ForeignFolderError
from reproduction.data_folder import DataFolder, _sha256
from reproduction.keep import Keeper
from reproduction.run import measure
from tests.reproduction import toy

SUMS = {
    "sum": {"piece 1, of 3": 3.0, "piece 2, of 3": 6.0, "piece 3, of 3": 9.0},
    "1": 2,
    "order": 3 * ["z", "a", "process"],
}


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    _sha256.cache_clear()
    return toy.folder(tmp_path / "data")


@pytest.fixture
def keeper(tmp_path: Path, data: DataFolder) -> Keeper:
    return Keeper(tmp_path / "out", data)


def test_figures_are_as_json_reads_them(keeper: Keeper):
    measured = measure([toy.PART], keeper)["toy"]
    assert measured.figures == SUMS
    assert set(measured.seconds) == {"cpu", "wall"}


def test_finished_work_is_not_done_again(keeper: Keeper):
    told: list[str] = []
    first = measure([toy.PART], keeper, done=lambda _, piece: told.append(piece))
    again = measure([toy.PART], keeper, done=lambda _, piece: told.append(piece))
    assert first == again
    assert toy.calls(keeper.data) == 3
    assert told == 2 * list(toy.PART.pieces)


def test_what_was_finished_before_a_failure_is_kept(keeper: Keeper):
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        measure([toy.FAILING], keeper)
    assert toy.calls(keeper.data) == 3
    assert measure([toy.PART], keeper)["toy"].figures == SUMS
    assert toy.calls(keeper.data) == 3


def test_other_data_are_measured_again(keeper: Keeper):
    measure([toy.PART], keeper)
    (keeper.data.path / toy.FILE).write_text("1\n3\n")
    _sha256.cache_clear()  # within one run the files are taken not to change
    assert measure([toy.PART], keeper)["toy"].figures["sum"]["piece 1, of 3"] == 4.0
    assert toy.calls(keeper.data) == 6


def test_findings_of_another_version_are_measured_again(keeper: Keeper, monkeypatch: pytest.MonkeyPatch):
    measure([toy.PART], keeper)
    monkeypatch.setattr("kinrank.__version__", "99.0")
    measure([toy.PART], keeper)
    assert toy.calls(keeper.data) == 6


@pytest.mark.parametrize("name", ["values0.npy", "manifest.json"])
def test_a_damaged_piece_is_measured_again(keeper: Keeper, name: str):
    measure([toy.PART], keeper)
    file = keeper.path / "toy" / "piece-2-of-3" / name
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    assert measure([toy.PART], keeper)["toy"].figures == SUMS
    assert toy.calls(keeper.data) == 4


def test_what_is_not_ours_is_left_alone(keeper: Keeper):
    note = keeper.path / "toy" / "piece-2-of-3" / "notes.txt"
    note.parent.mkdir(parents=True)
    note.write_text("mine")
    with pytest.raises(ForeignFolderError, match="not a kinrank findings folder"):
        measure([toy.PART], keeper)
    assert toy.calls(keeper.data) == 0
    assert note.read_text() == "mine"


@pytest.mark.slow
def test_processes_find_what_one_finds(keeper: Keeper):
    assert measure([toy.PART], keeper, jobs=2)["toy"].figures == SUMS
    kept = [keeper.kept(toy.PART, piece) for piece in toy.PART.pieces]
    assert all(found is not None and found[0].figures["process"] for found in kept)
    assert toy.calls(keeper.data) == 3


def test_a_missing_file_is_named_before_any_work(keeper: Keeper):
    (keeper.data.path / toy.FILE).unlink()
    with pytest.raises(DataError, match=r"1 of the files that this reads are missing: numbers\.txt.*--data"):
        measure([toy.PART], keeper)
    assert not keeper.path.exists()


def test_the_folder_is_the_one_given_or_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KINRANK_DATA", str(tmp_path))
    assert DataFolder.found(None).path == tmp_path
    with pytest.raises(DataError, match="nowhere: no such folder"):
        DataFolder.found(str(tmp_path / "nowhere"))
    monkeypatch.delenv("KINRANK_DATA")
    with pytest.raises(DataError, match="Give --data FOLDER or set KINRANK_DATA"):
        DataFolder.found(None)
