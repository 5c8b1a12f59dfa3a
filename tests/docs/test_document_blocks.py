from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.document_blocks import blocks_of, commands_of, run_document


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


def test_only_python_and_console_blocks_are_found_with_their_lines():
    text = "# Title\n\n" + fenced("python", "x = 1") + "text\n" + fenced("json", "{}") + fenced("console", "$ true")
    assert [(block.language, block.line) for block in blocks_of(text)] == [("python", 4), ("console", 11)]


def test_a_marked_block_is_not_run(run):
    run("<!-- not run -->\n" + fenced("python", "raise SystemExit"))
    run("<!-- not run -->\n\n" + fenced("console", "$ false"))


def test_the_mark_covers_one_block_only(run):
    with pytest.raises(ZeroDivisionError, match="division"):
        run("<!-- not run -->\n" + fenced("python", "pass") + fenced("python", "1 / 0"))


def test_blocks_share_names_and_folder_in_order(run):
    folder = run(
        fenced("python", "from pathlib import Path\nname = 'a.txt'")
        + fenced("console", "$ echo hello > b.txt")
        + fenced("python", ">>> other = 'b.txt'\n>>> Path(other).read_text()\n'hello\\n'")
        + fenced("python", "Path(name).write_text(Path(other).read_text())")
        + fenced("console", "$ cat a.txt\nhello")
    )
    assert (folder / "a.txt").read_text() == "hello\n"


def test_an_error_has_the_line_of_the_document(run):
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
def test_what_is_shown_must_be_what_happens(run, block):
    with pytest.raises(AssertionError, match=r"line 2|hello"):
        run(block)


def test_dots_stand_for_anything_and_stderr_is_not_compared(run):
    run(fenced("console", "$ echo from 1 to 99; echo progress >&2\nfrom ... 99"))


def test_commands_continue_after_a_backslash_and_own_the_lines_under_them():
    source = "$ echo a \\\n    b\na b\n\n$ true\n$ echo c\nc\n"
    assert commands_of(source) == [("echo a \\\n    b", "a b\n\n"), ("true", ""), ("echo c", "c\n")]


def test_output_without_a_command_is_refused():
    with pytest.raises(AssertionError, match="a command starts with"):
        commands_of("kinrank train\n")
