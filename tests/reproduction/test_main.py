from __future__ import annotations

import copy
import re
from pathlib import Path
from pkgutil import resolve_name

import pytest
import typer
from typer.testing import CliRunner, Result

import kinrank
from kinrank.rankers.base import Ranker
from reproduction import PAPERS
from reproduction.__main__ import _show, app
from reproduction.catalog import EXPERIMENTS
from reproduction.claims import expectations, verdict_on
from reproduction.data_folder import WHERE
from reproduction.items import ALGORITHMS, Algorithm, collections_of, experiments_at, items
from reproduction.results import STORED, Results


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


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


def test_missing_data_is_named_with_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    done = run("geng:fig1", "--data", tmp_path)
    assert "text/mwmbl (https://github.com/mwmbl/mwmbl); see docs/benchmarks.md" in done.stderr
    monkeypatch.delenv("KINRANK_DATA", raising=False)
    done = run("knn-letor-curves")
    assert done.exit_code == 2
    assert "fetch_letor('MQ2008')" in done.stderr


def test_every_collection_that_is_read_has_a_source():
    assert set(collections_of(list(EXPERIMENTS.values()))) == set(WHERE)


def test_generated_world_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("KINRANK_DATA", raising=False)
    asked = []
    monkeypatch.setattr("reproduction.run.measure", lambda experiments, *_, **__: asked.extend(experiments) or {})
    done = run("geng:fig7", "--out", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert [each.name for each in asked] == ["intents"]


def test_list_shows_command_minutes_and_verdict(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "200")
    done = run("--list")
    assert done.exit_code == 0
    line = next(line for line in done.stdout.splitlines() if "geng:fig7" in line)
    expected = next(item for item in items() if item.name == "geng:fig7").verdict(Results.read(STORED))
    assert re.fullmatch(rf"geng +Figure 7 +geng:fig7 +generated +\d+\.\d +{re.escape(expected)}", line.strip())


def test_every_listed_name_runs_its_experiment():
    listed = items()
    assert len({item.name for item in listed if ":" in item.name}) == sum(":" in item.name for item in listed)
    assert {item.experiment for item in listed} == set(EXPERIMENTS)
    for item in listed:
        assert [each.name for each in experiments_at(item.name)] == [item.experiment]


def test_every_claim_is_listed():
    listed = {claim for item in items() for claim in item.claims}
    assert listed == {claim for paper in PAPERS for claim in expectations(paper).claims}


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_algorithm_names_code_and_claims_that_exist(algorithm: Algorithm):
    assert algorithm.claims
    assert {EXPERIMENTS[each.name].paper for each in experiments_at(algorithm.item)} == {algorithm.paper}
    if algorithm.code.startswith("reproduction."):
        assert resolve_name(algorithm.code)
    else:
        assert isinstance(
            eval(algorithm.code, vars(kinrank) | {name: getattr(kinrank, name) for name in kinrank.__all__}), Ranker
        )


def test_verdict_on_no_figures_is_not_measured():
    item = items()[0]
    assert verdict_on(item.paper, item.claims, {}) == "not measured"


def test_verdict_is_undecided_if_an_open_thesis_does_not_hold():
    claims = expectations("sser").claims
    figures = Results.read(STORED).figures
    thesis = [each for each in claims if (each.kind, each.data) == ("thesis", "real")]
    assert verdict_on("sser", thesis, figures) == "undecided (0 of 2)"
    assert verdict_on("geng", thesis, figures) == "not reproduced (0 of 2)"


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
