from __future__ import annotations

from pathlib import Path

import pytest

from kinrank.errors import DataError, ForeignFolderError
from reproduction.cache import ResultCache
from reproduction.data_folder import DataFolder, _sha256
from reproduction.run import measure
from tests.reproduction import toy

SUMS = {
    "sum": {"task 1, of 3": 3.0, "task 2, of 3": 6.0, "task 3, of 3": 9.0},
    "1": 2,
    "order": 3 * ["z", "a", "process"],
}


@pytest.fixture
def data(tmp_path: Path) -> DataFolder:
    _sha256.cache_clear()
    return toy.folder(tmp_path / "data")


@pytest.fixture
def cache(tmp_path: Path, data: DataFolder) -> ResultCache:
    return ResultCache(tmp_path / "out", data)


def test_figures_are_converted_to_json_types(cache: ResultCache):
    measured = measure([toy.EXPERIMENT], cache)["toy"]
    assert measured.figures == SUMS
    assert set(measured.seconds) == {"cpu", "wall"}


def test_finished_tasks_are_not_run_again(cache: ResultCache):
    done: list[str] = []
    first = measure([toy.EXPERIMENT], cache, on_done=lambda _, task: done.append(task))
    again = measure([toy.EXPERIMENT], cache, on_done=lambda _, task: done.append(task))
    assert first == again
    assert toy.calls(cache.data) == 3
    assert done == 2 * list(toy.EXPERIMENT.tasks)


def test_tasks_finished_before_a_failure_are_cached(cache: ResultCache):
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        measure([toy.FAILING], cache)
    assert toy.calls(cache.data) == 3
    assert measure([toy.EXPERIMENT], cache)["toy"].figures == SUMS
    assert toy.calls(cache.data) == 3


def test_changed_data_is_measured_again(cache: ResultCache):
    measure([toy.EXPERIMENT], cache)
    (cache.data.path / toy.FILE).write_text("1\n3\n")
    _sha256.cache_clear()  # checksums are cached within a run
    assert measure([toy.EXPERIMENT], cache)["toy"].figures["sum"]["task 1, of 3"] == 4.0
    assert toy.calls(cache.data) == 6


def test_results_of_another_version_are_measured_again(cache: ResultCache, monkeypatch: pytest.MonkeyPatch):
    measure([toy.EXPERIMENT], cache)
    monkeypatch.setattr("kinrank.__version__", "99.0")
    measure([toy.EXPERIMENT], cache)
    assert toy.calls(cache.data) == 6


@pytest.mark.parametrize("name", ["values0.npy", "manifest.json"])
def test_damaged_result_is_measured_again(cache: ResultCache, name: str):
    measure([toy.EXPERIMENT], cache)
    [file] = (cache.path / "toy" / "task-2-of-3").rglob(name)
    file.write_bytes(file.read_bytes()[:-1] + b"\x01")
    assert measure([toy.EXPERIMENT], cache)["toy"].figures == SUMS
    assert toy.calls(cache.data) == 4


def test_foreign_folder_is_not_overwritten(cache: ResultCache):
    note = cache.path / "toy" / "task-2-of-3" / "notes.txt"
    note.parent.mkdir(parents=True)
    note.write_text("mine")
    with pytest.raises(ForeignFolderError, match="not a kinrank task-result folder"):
        measure([toy.EXPERIMENT], cache)
    assert toy.calls(cache.data) == 0
    assert note.read_text() == "mine"


@pytest.mark.slow
def test_processes_give_the_figures_of_one_process(cache: ResultCache):
    assert measure([toy.EXPERIMENT], cache, jobs=2)["toy"].figures == SUMS
    cached = [cache.load(toy.EXPERIMENT, task) for task in toy.EXPERIMENT.tasks]
    assert all(each is not None and each[0].figures["process"] for each in cached)
    assert toy.calls(cache.data) == 3


def test_missing_file_raises_before_any_work(cache: ResultCache):
    (cache.data.path / toy.FILE).unlink()
    with pytest.raises(DataError, match=r"1 of the files to read are missing: numbers\.txt.*--data"):
        measure([toy.EXPERIMENT], cache)
    assert not cache.path.exists()


def test_data_folder_comes_from_the_argument_or_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KINRANK_DATA", str(tmp_path))
    assert DataFolder.locate(None, ["text/msrd"]).path == tmp_path
    with pytest.raises(DataError, match="nowhere: no such folder"):
        DataFolder.locate(str(tmp_path / "nowhere"), ["text/msrd"])
    monkeypatch.delenv("KINRANK_DATA")
    with pytest.raises(DataError, match="pass --data FOLDER or set KINRANK_DATA"):
        DataFolder.locate(None, ["text/msrd"])
