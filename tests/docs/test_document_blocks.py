from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.docs.document_blocks import blocks_of, commands_of, environment, run_document


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def run_text(text: str) -> Path:
        file = tmp_path / "page.md"
        file.write_text(text)
        run_document(file, tmp_path)
        return tmp_path

    return run_text


def fenced(language: str, source: str) -> str:
    return f"```{language}\n{source}\n```\n"


def test_only_python_and_console_blocks_are_found():
    text = "# Title\n\n" + fenced("python", "x = 1") + "text\n" + fenced("json", "{}") + fenced("console", "$ true")
    assert [(block.language, block.line) for block in blocks_of(text)] == [("python", 4), ("console", 11)]


def test_marked_block_is_not_run(run):
    run("<!-- not run -->\n" + fenced("python", "raise SystemExit"))
    run("<!-- not run -->\n\n" + fenced("console", "$ false"))


def test_mark_applies_to_one_block_only(run):
    with pytest.raises(ZeroDivisionError, match="division"):
        run("<!-- not run -->\n" + fenced("python", "pass") + fenced("python", "1 / 0"))


def test_blocks_run_in_order_and_share_namespace_and_folder(run):
    folder = run(
        fenced("python", "from pathlib import Path\nname = 'a.txt'")
        + fenced("console", "$ echo hello > b.txt")
        + fenced("python", ">>> other = 'b.txt'\n>>> Path(other).read_text()\n'hello\\n'")
        + fenced("python", "Path(name).write_text(Path(other).read_text())")
        + fenced("console", "$ cat a.txt\nhello")
    )
    assert (folder / "a.txt").read_text() == "hello\n"


def test_error_has_the_line_number_in_the_document(run):
    with pytest.raises(ZeroDivisionError, match="division") as error:
        run("one\n\n" + fenced("python", "x = 0\n1 / x"))
    assert error.traceback[-1].lineno + 1 == 5


@pytest.mark.parametrize(
    "block",
    [
        fenced("console", "$ echo hello\ngoodbye"),
        fenced("console", "$ echo hello\nhello ... world"),
        fenced("console", "$ false"),
        fenced("console", "$ false | cat"),
        fenced("python", ">>> 1 + 1\n3"),
    ],
)
def test_wrong_output_or_failed_command_raises(run, block):
    with pytest.raises(AssertionError, match=r"line 2|hello"):
        run(block)


def test_dots_match_any_text_and_stderr_is_not_compared(run):
    run(fenced("console", "$ echo from 1 to 99; echo progress >&2\nfrom ... 99"))


def test_decimals_and_times_may_differ_a_little(run):
    run(fenced("console", "$ echo 'NDCG 0.7012  +0.052 in 3 s, p 2e-9'\nNDCG 0.70 +0.06 in 12.5 s, p 3.1e-08"))
    run(fenced("python", ">>> 0.712, 300\n(0.71, 300)"))


@pytest.mark.parametrize("shown", ["0.80 of 300", "-0.01 of 300", "0.70 of 301", "0.70 of", "0.70 of 300 queries"])
def test_numbers_that_differ_more_raise(run, shown):
    with pytest.raises(AssertionError, match="but it shows"):
        run(fenced("console", f"$ echo 0.7 of 300\n{shown}"))


def test_numbers_of_a_marked_block_may_have_any_value(run):
    run("<!-- numbers vary -->\n" + fenced("console", "$ echo 0.7 of 300\n0.1 of 2"))
    with pytest.raises(AssertionError, match="but it shows"):
        run("<!-- numbers vary -->\n" + fenced("console", "$ echo 0.7 of 300\n0.1 from 2"))


def test_commands_continue_after_a_backslash():
    source = "$ echo a \\\n    b\na b\n\n$ true\n$ echo c\nc\n"
    assert commands_of(source) == [("echo a \\\n    b", "a b\n\n"), ("true", ""), ("echo c", "c\n")]


def test_output_without_a_command_raises():
    with pytest.raises(AssertionError, match="a command starts with"):
        commands_of("kinrank train\n")


def test_warm_program_does_what_the_program_does(tmp_path: Path, warm: Path):
    commands = "kinrank rank no-such-model test", "kinrank train --list | head -2; echo ${PIPESTATUS[0]}", "kinrank -v"
    for command in commands:
        cold, same = (
            subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=environment(programs), capture_output=True, text=True
            )
            for programs in (None, warm)
        )
        assert same.stdout == cold.stdout
        assert same.stderr == cold.stderr
        assert same.returncode == cold.returncode
