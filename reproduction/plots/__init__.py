"""The plots of the page, drawn from the results. They need Matplotlib: ``pip install '.[report]'``."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinrank.registry import import_extra
from reproduction.plots import atvt_gains, curves, ensembles, maps, oracles, query_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = "figures"
STYLE = {
    "svg.hashsalt": "kinrank",  # the same ids in every run
    "svg.fonttype": "none",  # keep text as text: smaller files, searchable
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial"],
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "figure.facecolor": "white",
}
Draw = Callable[["Figure", Mapping[str, Any]], None]
# Name: experiment, size in inches, drawing function.
PLOTS: dict[str, tuple[str, tuple[float, float], Draw]] = {
    "map": ("query-map", (9, 4.2), query_map.draw),
    "intents": ("intents", (9, 3.6), curves.draw_methods),
    "curves": ("intent-curves", (9, 3.6), curves.draw_over_k),
    "letor-curves": ("knn-letor-curves", (9, 3.4), curves.draw_letor),
    "cost": ("knn-cost", (9, 2.8), curves.draw_cost),
    "movies": ("knn-msrd", (9, 3.0), curves.draw_movies),
    "oracles": ("cluster-oracles", (9, 6.6), oracles.draw),
    "relevant": ("relevant-counts", (9, 2.8), oracles.draw_counts),
    "atvt": ("atvt", (9, 4.2), atvt_gains.draw),
    "ensemble": ("ensemble", (9, 3.6), ensembles.draw),
    "when-local": ("map-local", (9, 3.8), maps.draw_local),
    "when-atvt": ("map-atvt", (9, 3.2), maps.draw_atvt),
    "when-clusters": ("map-clusters", (9, 2.6), maps.draw_clusters),
    "when-ensemble": ("map-ensemble", (9, 3.4), maps.draw_ensemble),
}


def draw(figures: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draw the plots of all measured experiments as SVG files."""
    matplotlib = import_extra("matplotlib", "report")
    figure_module = import_extra("matplotlib.figure", "report")
    drawn = []
    for name, (experiment, size, drawing) in PLOTS.items():
        if experiment not in figures:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        with matplotlib.rc_context(STYLE):
            page = figure_module.Figure(figsize=size, layout="constrained")
            drawing(page, figures[experiment])
            text = io.StringIO()
            page.savefig(text, format="svg", metadata={"Date": None})
        target = folder / f"reproduction-{name}.svg"
        target.write_text(_shorten(text.getvalue()), encoding="utf-8")
        drawn.append(target)
    return drawn


def _shorten(svg: str) -> str:
    """Round coordinates to hundredths of a point, which is invisible, and drop indentation. Text is unchanged."""
    tags = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\d\.\d\d)\d+", r"\1", tag[0]), svg)
    return re.sub(r"\s*\n\s*", "\n", tags)
