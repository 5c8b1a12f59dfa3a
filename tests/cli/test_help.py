from __future__ import annotations

import subprocess
import sys

import pytest

import kinrank as library
from kinrank.cli.train import DEFAULT_RANKER
from kinrank.rankers import RANKERS
from kinrank.rankers.capability_table import capability_table

VERBS = ["log", "convert", "headroom", "tune", "train", "rank", "evaluate", "compare", "report", "weights"]
VERBS += ["serve", "key", "explain"]


def test_all_verbs_are_listed(kinrank):
    help_page = kinrank("--help").stdout
    assert all(verb in help_page for verb in VERBS)


@pytest.mark.parametrize("args", [["--help"], *([verb, "--help"] for verb in VERBS), ["--version"]], ids=" ".join)
def test_help_loads_nothing_heavy(args: list[str]):
    code = (
        "import sys\nfrom kinrank.cli import main\n"
        f"sys.argv = ['kinrank', *{args!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(*{'numpy', 'scipy', 'numba', 'sklearn', 'pyarrow', 'pandas'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
    assert done.stdout


def test_the_version(script):
    done = script("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kinrank {library.__version__}\n", "")


def test_every_ranker_is_listed_with_its_parameters(kinrank):
    listed = kinrank("train", "--list").stdout
    assert all(f"{name}: " in listed for name in RANKERS)
    assert "  n_neighbors: int = 400\n" in listed
    assert listed.endswith(f"\n\n{capability_table()}\n")
    assert DEFAULT_RANKER in RANKERS


def test_a_new_ranker_is_found_by_being_registered(kinrank, workdir, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(RANKERS._members, "newcomer", "kinrank.rankers.single:SingleRanker")
    assert "newcomer: One model" in kinrank("train", "--list").stdout
    assert "'newcomer'" in kinrank("train", "train.parquet", "--model", "m", "--ranker", "nobody").stderr
