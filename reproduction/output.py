"""Write the output of a run: the figures as JSON, the pages and the plots."""

from __future__ import annotations

from pathlib import Path

from kinrank.registry import import_extra
from reproduction import page, plots, results
from reproduction.results import Results


def check_extras() -> None:
    """Raise an error before any work starts if an optional dependency is missing."""
    import_extra("lightgbm", "lightgbm")
    import_extra("matplotlib", "report")


def write(measured: Results, folder: Path) -> list[Path]:
    """Write all output into an existing folder and return the files written."""
    figures = folder / results.FILE
    measured.write(figures)
    return [figures, *page.write(measured, folder), *plots.draw(measured.figures, folder / plots.FOLDER)]
