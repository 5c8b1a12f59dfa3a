"""Run the code blocks of a Markdown document in order, as a reader would type them.

- A ``python`` block is executed; one that starts with ``>>>`` is run as a doctest. All blocks share one namespace.
- In a ``console`` block each line after ``$ `` is a command, run by bash in the document's folder. A backslash at the
  end of the line continues it. The lines under a command are its stdout; without any, the output is not checked. A
  command that fails is an error.
- Output is compared with some tolerance for measured numbers, see `tests.docs.output_checker`. In a block under
  ``<!-- numbers vary -->`` numbers may have any value.
- A block under ``<!-- not run -->`` is not run.
"""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.output_checker import TolerantChecker
from tests.docs.warm import SHOWN
from tests.serve.servers import free_port

NOT_RUN = "<!-- not run -->"
NUMBERS_VARY = "<!-- numbers vary -->"
LANGUAGES = {"python", "console"}
LENIENT = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<source>.*?)^```\s*$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line where the text starts, and how to check its output."""

    language: str
    source: str
    line: int
    checker: TolerantChecker


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a document that should run."""
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()].rstrip()
        if match["language"] in LANGUAGES and not before.endswith(NOT_RUN):
            line = text[: match.start("source")].count("\n") + 1
            checker = TolerantChecker(any_numbers=before.endswith(NUMBERS_VARY))
            found.append(Block(match["language"], match["source"], line, checker))
    return found


def run_document(file: Path, folder: Path, programs: Path | None = None) -> None:
    """Run all blocks of a document. The current directory must be `folder`.

    `programs` is a folder of programs to use. Servers get other ports and deadlines than those printed, so that other
    pages and a busy machine do not matter.
    """
    text, namespace = file.read_text(), {"__name__": "__main__"}
    for port in set(re.findall(r"--port (\d+)", text)):
        text = text.replace(port, str(free_port()))
    text = re.sub(r"--deadline \d+", "--deadline 60000", text)
    for block in blocks_of(text):
        where = f"{file.name}, line {block.line}"
        if block.language == "console":
            _run_console(block, where, folder, programs)
        elif block.source.lstrip().startswith(">>>"):
            _run_doctest(block, where, namespace)
        else:
            # Empty lines in front make errors show the line number in the document.
            exec(compile("\n" * (block.line - 1) + block.source, str(file), "exec"), namespace)


def commands_of(source: str) -> list[tuple[str, str]]:
    """Return pairs of a command and the output shown under it."""
    commands: list[tuple[str, str]] = []
    continued = False
    for line in source.splitlines():
        if continued:
            commands[-1] = (f"{commands[-1][0]}\n{line}", "")
        elif line.startswith("$ "):
            commands.append((line[2:], ""))
        elif commands:
            commands[-1] = (commands[-1][0], f"{commands[-1][1]}{line}\n")
        else:
            raise AssertionError(f"output without a command: {line!r}; a command starts with '$ '")
        continued = (continued or line.startswith("$ ")) and line.endswith("\\")
    return commands


def environment(programs: Path | None) -> dict[str, str]:
    """Return the environment of commands: programs of a folder come first, then those installed with the package."""
    folders = [*([] if programs is None else [programs]), Path(sys.executable).parent, os.environ["PATH"]]
    return {**os.environ, **SHOWN, "PATH": os.pathsep.join(map(str, folders))}


def _run_console(block: Block, where: str, folder: Path, programs: Path | None) -> None:
    for command, shown in commands_of(block.source):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environment(programs),
            capture_output=True,
            text=True,
        )
        got = f"{where}: $ {command}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, got
        if shown.strip():
            assert block.checker.check_output(shown, done.stdout, LENIENT), f"{got}\nbut it shows\n{shown}"


def _run_doctest(block: Block, where: str, namespace: dict[str, Any]) -> None:
    examples = doctest.DocTestParser().get_doctest(block.source, namespace, where, where, block.line - 1)
    examples.globs = namespace  # the parser copies it; names must outlive the block
    report: list[str] = []
    runner = doctest.DocTestRunner(checker=block.checker, optionflags=LENIENT)
    assert runner.run(examples, out=report.append, clear_globs=False).failed == 0, "".join(report)
