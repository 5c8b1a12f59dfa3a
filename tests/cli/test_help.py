from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
from typer.core import TyperOption as Option
from typer.main import get_command

import kinrank as library
from kinrank.cli import app
from kinrank.cli.app import EXAMPLES
from kinrank.cli.train import DEFAULT_RANKER
from kinrank.engines import connect
from kinrank.rankers import RANKERS
from kinrank.rankers.capabilities import capability_table
from kinrank.registry import import_extra

PROGRAM = get_command(app)


def commands_of(command, *words: str) -> dict[str, list]:
    """Return the options of each command that can be run, by its words after kinrank."""
    if not hasattr(command, "commands"):
        return {" ".join(words): [option for option in command.params if isinstance(option, Option)]}
    return {
        name: options
        for word, each in command.commands.items()
        for name, options in commands_of(each, *words, word).items()
    }


COMMANDS = commands_of(PROGRAM)


def test_help_starts_with_where_to_start_and_lists_all_commands(kinrank):
    help_page = kinrank("--help").stdout
    _, _, text = help_page.partition("[ARGS]...")
    assert text.split("\n\n")[0].split("│")[0].strip().startswith("New here? kinrank demo, then kinrank doctor FILE.")
    assert all(command in help_page for command in PROGRAM.commands)


@pytest.mark.parametrize(
    "args", [["--help"], *([*command.split(), "--help"] for command in COMMANDS), ["--version"]], ids=" ".join
)
def test_help_imports_no_heavy_package(args: list[str]):
    code = (
        "import sys\nfrom kinrank.cli import main\n"
        f"sys.argv = ['kinrank', *{args!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(*{'numpy', 'scipy', 'numba', 'sklearn', 'pyarrow', 'pandas'} & set(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split() == []
    assert done.stdout


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_help_ends_with_an_example_that_parses(kinrank, name: str):
    words = shlex.split(EXAMPLES[name])
    command = PROGRAM
    for place, word in enumerate(["kinrank", *name.split()]):
        assert words[place] == word
        command = command if place == 0 else command.commands[word]
    command.make_context(name, words[place + 1 :])  # raises if an option or argument is wrong
    assert "Example: kinrank" in kinrank(*name.split(), "--help").stdout


def test_example_of_log_has_an_engine_address():
    words = shlex.split(EXAMPLES["log"])
    import_extra("elasticsearch", "engines")
    with connect(words[words.index("--engine") + 1]) as engine:
        assert engine.index_name == "movies"


def test_every_command_has_an_example():
    assert set(EXAMPLES) == set(COMMANDS)


def test_commands_and_options_do_not_grow_unnoticed():
    options = [option for options in COMMANDS.values() for option in options]
    assert len(PROGRAM.commands) <= 14
    assert len(options) <= 135  # as scripts/count prints, without --version and --debug


def test_version(script):
    done = script("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"kinrank {library.__version__}\n", "")


def test_list_shows_every_ranker_with_its_parameters(kinrank):
    listed = kinrank("train", "--list").stdout
    assert all(f"{name}: " in listed for name in RANKERS)
    assert "  n_neighbors: int = 400\n" in listed
    assert listed.endswith(f"\n\n{capability_table()}\n")
    assert DEFAULT_RANKER in RANKERS


def test_registered_ranker_is_listed(kinrank, workdir, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(RANKERS._members, "newcomer", "kinrank.rankers.single:SingleRanker")
    assert "newcomer: One model" in kinrank("train", "--list").stdout
    assert "'newcomer'" in kinrank("train", "train.parquet", "--model", "m", "--ranker", "nobody").stderr
