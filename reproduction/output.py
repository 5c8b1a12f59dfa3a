"""What a run leaves behind: the figures as JSON, the page, the pictures."""

from __future__ import annotations

from pathlib import Path

from kinrank.registry import import_extra
from reproduction import page, pictures, results
from reproduction.results import Results


def check_extras() -> None:
    """Find out before the work, not after it, that it cannot be done."""
    import_extra("lightgbm", "lightgbm")
    import_extra("matplotlib", "report")


def write(found: Results, folder: Path) -> list[Path]:
    """Write everything into a folder that is there already; answers what was written."""
    figures, text = folder / results.FILE, folder / page.FILE
    found.write(figures)
    text.write_text(page.render(found), encoding="utf-8")
    return [figures, text, *pictures.draw(found.figures, folder / pictures.FOLDER)]
