"""Run the cells of a notebook as Jupyter would, without a kernel, and compare or store what they print and draw.

``python -m tests.docs.notebooks FILE...`` runs notebooks in a temporary folder and stores their outputs. Notebooks use
plain Python only: no magics, no shell commands. A cell shows the figures of matplotlib that it opened; the title of a
figure is its text alternative.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.docs.document_blocks import LENIENT
from tests.docs.output_checker import TolerantChecker


@dataclass(frozen=True)
class Output:
    """What a cell printed, with the value of its last line, and its pictures by title."""

    printed: str
    pictures: dict[str, bytes]

    def stored(self) -> list[dict[str, Any]]:
        """Return the outputs in the format of notebooks."""
        lines = self.printed.splitlines(keepends=True)
        printed = [{"name": "stdout", "output_type": "stream", "text": lines}] if lines else []
        return printed + [
            {
                "data": {"image/png": base64.b64encode(png).decode(), "text/plain": [title]},
                "metadata": {},
                "output_type": "display_data",
            }
            for title, png in self.pictures.items()
        ]


def run_cells(notebook: dict[str, Any]) -> list[tuple[dict[str, Any], Output]]:
    """Run the code cells in the current folder. Return each with its output."""
    os.environ["MPLBACKEND"] = "agg"
    namespace: dict[str, Any] = {"__name__": "__main__"}
    return [
        (cell, _run("".join(cell["source"]), namespace)) for cell in notebook["cells"] if cell["cell_type"] == "code"
    ]


def _run(source: str, namespace: dict[str, Any]) -> Output:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(tree, "<cell>", "exec"), namespace)
        value = None if last is None else eval(compile(ast.Expression(last.value), "<cell>", "eval"), namespace)
        if value is not None:
            printed.write(f"{value!r}\n")
    return Output(printed.getvalue(), _take_pictures())


def _take_pictures() -> dict[str, bytes]:
    """Return the open figures by title, and close them."""
    if "matplotlib.pyplot" not in sys.modules:
        return {}
    from matplotlib import pyplot  # only notebooks that draw need it

    pictures = {}
    for number in pyplot.get_fignums():
        figure, stream = pyplot.figure(number), io.BytesIO()
        figure.savefig(stream, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
        pictures[figure.get_suptitle() or figure.axes[0].get_title()] = stream.getvalue()
    pyplot.close("all")
    return pictures


def printed_by(cell: dict[str, Any]) -> str:
    """Return what a cell is stored to have printed."""
    return "".join("".join(output.get("text", "")) for output in cell["outputs"])


def titles_of(cell: dict[str, Any]) -> list[str]:
    """Return the titles of the pictures that are stored with a cell."""
    return ["".join(output["data"]["text/plain"]) for output in cell["outputs"] if "data" in output]


def check_notebook(file: Path) -> None:
    """Run a notebook and compare its outputs with those stored: text with some tolerance for numbers, and titles."""
    for cell, got in run_cells(json.loads(file.read_text())):
        shown, where = printed_by(cell), f"{file.name}:\n{''.join(cell['source'])}"
        same = TolerantChecker().check_output(shown, got.printed, LENIENT)
        assert same, f"{where}\nprinted\n{got.printed}\nbut it shows\n{shown}"
        assert list(got.pictures) == titles_of(cell), where


def store_outputs(file: Path) -> None:
    """Run a notebook and write it with its outputs."""
    notebook = json.loads(file.read_text())
    for number, (cell, got) in enumerate(run_cells(notebook), 1):
        cell["outputs"] = got.stored()
        cell["execution_count"] = number
    file.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    files = [Path(name).absolute() for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for each in files:
            store_outputs(each)
