"""Run the cells of a notebook as Jupyter would, without a kernel, and compare or store what they print.

``python -m tests.docs.notebooks FILE...`` runs notebooks in a temporary folder and stores their outputs. Notebooks use
plain Python only: no magics, no shell commands.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.docs.document_blocks import LENIENT
from tests.docs.output_checker import TolerantChecker


def run_cells(notebook: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """Run the code cells in the current folder. Return each with what it prints, and the value of its last line."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [
        (cell, _run("".join(cell["source"]), namespace)) for cell in notebook["cells"] if cell["cell_type"] == "code"
    ]


def _run(source: str, namespace: dict[str, Any]) -> str:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "<cell>", "exec"), namespace)
        value = None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
        if value is not None:
            printed.write(f"{value!r}\n")
    return printed.getvalue()


def check_notebook(file: Path) -> None:
    """Run a notebook and compare what it prints with the stored outputs, with some tolerance for numbers."""
    for cell, got in run_cells(json.loads(file.read_text())):
        shown = "".join("".join(output["text"]) for output in cell["outputs"])
        where = f"{file.name}:\n{''.join(cell['source'])}"
        assert TolerantChecker().check_output(shown, got, LENIENT), f"{where}\nprinted\n{got}\nbut it shows\n{shown}"


def store_outputs(file: Path) -> None:
    """Run a notebook and write it with its outputs."""
    notebook = json.loads(file.read_text())
    for number, (cell, text) in enumerate(run_cells(notebook), 1):
        lines = text.splitlines(keepends=True)
        cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
        cell["execution_count"] = number
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    files = [Path(name).absolute() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for each in files:
            store_outputs(each)
