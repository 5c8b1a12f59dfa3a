"""Geng et al., Figure 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reproduction.experiments.query_map import SHOWN
from reproduction.plots.colors import BLUE, GREEN, ORANGE, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {"mean": "by the mean of their candidates' features", "summaries+text": "by summaries and query text"}
MARKS = dict(zip(SHOWN, ((BLUE, "o"), (ORANGE, "^"), (GREEN, "s")), strict=True))


def draw(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw queries in two principal components: three intents in color, the others gray."""
    for axes, (description, each) in zip(page.subplots(1, len(figures)), figures.items(), strict=True):
        others = [name for name in each["points"] if name not in MARKS]
        points = [point for name in others for point in each["points"][name]]
        axes.plot(
            *zip(*points, strict=True),
            "o",
            color=PALE,
            markersize=2.2,
            markeredgewidth=0,
            label=f"{len(others)} others",
        )
        for name, (color, mark) in MARKS.items():
            axes.plot(
                *zip(*each["points"][name], strict=True), mark, color=color, markersize=4, markeredgewidth=0, label=name
            )
        axes.set(title=TITLES[description], xlabel="first component", ylabel="second component")
        axes.set_xticks([], [])
        axes.set_yticks([], [])
    page.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, markerscale=1.6)
