from __future__ import annotations

import copy
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from reproduction.__main__ import _show, app
from reproduction.results import Results


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


STORED = Path(__file__).parents[2] / "docs" / "reproduction.json"


def test_data_folder_is_required(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KINRANK_DATA", raising=False)
    done = run("sser")
    assert done.exit_code == 2
    assert "pass --data FOLDER or set KINRANK_DATA" in done.stderr


def test_missing_files_are_listed_before_any_work(tmp_path: Path):
    done = run("sser", "--data", tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert "15 of the files to read are missing: letor/" in done.stderr
    assert not (tmp_path / "out").exists()


def test_unknown_paper_error_lists_the_papers(tmp_path: Path):
    done = run("knn", "--data", tmp_path)
    assert done.exit_code == 2
    assert "unknown paper 'knn': choose one of 'geng', 'local-models', 'atvt', 'sser', 'all'" in done.stderr


def test_expected_claims_exit_normally(capsys: pytest.CaptureFixture[str]):
    _show(Results.read(STORED))
    printed = capsys.readouterr()
    assert printed.out.count("claims reproduced") == 4
    assert "error" not in printed.err


def test_changed_figure_exits_with_3(capsys: pytest.CaptureFixture[str]):
    stored = Results.read(STORED)
    figures = copy.deepcopy(dict(stored.figures))
    figures["letor-baselines"]["MQ2007"]["RankSVM"]["MAP"] = 0.4
    with pytest.raises(typer.Exit) as exit_info:
        _show(Results(figures, stored.seconds))
    assert exit_info.value.exit_code == 3
    assert (
        "error: LETOR's published RankSVM, MQ2007: MAP 0.4645: 0.4, not reproduced, against" in capsys.readouterr().err
    )
