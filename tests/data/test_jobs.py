from __future__ import annotations

import json
from pathlib import Path

import pytest

from kinrank.data.files import changed_keys, claim_folder
from kinrank.errors import JobError
from kinrank.registry import import_extra

JOB = {"data": "a1", "sizes": (1, 2), "seed": 0}


def test_folder_is_created_with_the_job_and_can_be_claimed_again(tmp_path: Path) -> None:
    claim_folder(tmp_path / "deep" / "new", "job.json", JOB, "job")
    file = tmp_path / "deep" / "new" / "job.json"
    assert json.loads(file.read_text()) == {"data": "a1", "sizes": [1, 2], "seed": 0}
    assert [path.name for path in file.parent.iterdir()] == ["job.json"]
    (file.parent / "part").write_text("done")
    claim_folder(file.parent, "job.json", JOB, "job")


def test_folder_of_another_job_raises_with_the_differences(tmp_path: Path) -> None:
    claim_folder(tmp_path, "job.json", JOB, "job")
    with pytest.raises(JobError, match=r"belongs to another job \(different data, seed\): repeat .* delete the folder"):
        claim_folder(tmp_path, "job.json", {**JOB, "data": "b2", "seed": 1}, "job")


def test_nonempty_folder_without_a_job_raises(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(JobError, match=r"is not empty and has no job\.json of a log: choose another folder"):
        claim_folder(tmp_path, "job.json", JOB, "log")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_hidden_files_do_not_count(tmp_path: Path) -> None:
    (tmp_path / ".123.job.json").write_text("{")
    claim_folder(tmp_path, "job.json", JOB, "job")


def test_other_file_systems(tmp_path: Path) -> None:
    import_extra("fsspec", "ray")
    claim_folder("memory://jobs/one", "job.json", JOB, "job")
    with pytest.raises(JobError, match=r"memory://jobs/one belongs to another job \(different seed\)"):
        claim_folder("memory://jobs/one", "job.json", {**JOB, "seed": 1}, "job")


def test_missing_and_additional_entries_differ() -> None:
    assert changed_keys({"a": 1}, {}) == ["a"]
    assert changed_keys({}, {"a": None}) == ["a"]
    assert changed_keys({"a": None}, {}) == []
    assert changed_keys(JOB, {"data": "a1", "sizes": [1, 2], "seed": 0}) == []
