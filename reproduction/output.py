"""Write the output of a run: the figures as JSON, the page and the plots."""

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
    figures, text = folder / results.FILE, folder / page.FILE
    measured.write(figures)
    text.write_text(page.render(measured), encoding="utf-8")
    return [figures, text, *plots.draw(measured.figures, folder / plots.FOLDER)]
