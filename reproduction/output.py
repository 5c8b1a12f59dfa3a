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


def write(found: Results, folder: Path) -> list[Path]:
    """Write all output into an existing folder and return the files written."""
    figures, text = folder / results.FILE, folder / page.FILE
    found.write(figures)
    text.write_text(page.render(found), encoding="utf-8")
    return [figures, text, *plots.draw(found.figures, folder / plots.FOLDER)]
