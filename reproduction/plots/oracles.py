"""Local models, Figures 2, 3 and 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reproduction.experiments.cluster_oracles import CHANCE, LINES
from reproduction.experiments.relevant_counts import EASY_FROM, HARD_BELOW
from reproduction.plots.colors import BLUE, GREEN, INK, ORANGE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = dict(zip(LINES, (GREEN, GREEN, ORANGE, BLUE), strict=True))


def draw(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw MAP by number of clusters and by rank, one row per collection."""
    for (by_count, by_rank), (collection, each) in zip(page.subplots(len(figures), 2), figures.items(), strict=True):
        for name, color in COLORS.items():
            style = "o--" if name.endswith(CHANCE) else "o-"
            by_count.plot(each["n_clusters"], each[name], style, color=color, label=name, markersize=4)
        by_count.set(xscale="log", xlabel="clusters", ylabel="MAP", title=f"{collection}: which model ranks")
        by_count.set_xticks(each["n_clusters"], [str(count) for count in each["n_clusters"]])
        by_count.minorticks_off()
        for name, style in (("clusters", "-"), (CHANCE, "--")):
            curve = each[f"r-th best, {name}"]
            by_rank.plot(range(1, len(curve) + 1), curve, style, color=GREEN, label=f"r-th best, {name}")
        equal = (each["RankSVM equals the r-th best, clusters"], each["RankSVM"])
        by_rank.plot(*equal, "o", color=GREEN, markersize=5)
        by_rank.annotate(f"r = {equal[0]}", equal, (5, 6), textcoords="offset points", color=INK)
        by_rank.set(xlabel="r", title=f"{collection}: always the r-th best of {len(curve)} models")
        for axes in (by_count, by_rank):
            axes.axhline(each["RankSVM"], color=INK, linestyle=":", linewidth=1.2, label="RankSVM")
        by_count.legend(fontsize=8, loc="upper left")
        by_rank.legend(fontsize=8, loc="upper right")


def draw_counts(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw the number of queries by number of relevant documents."""
    for axes, (collection, each) in zip(page.subplots(1, len(figures)), figures.items(), strict=True):
        counts = {int(count): queries for count, queries in each["by relevant documents"].items()}
        axes.bar(list(counts), list(counts.values()), 1.0, color=BLUE)
        for bound in (HARD_BELOW, EASY_FROM[1]):
            axes.axvline(bound - 0.5, color=INK, linestyle=":", linewidth=1.2)
        axes.set(title=collection, xlabel="relevant documents", ylabel="queries")
        axes.grid(visible=False, axis="x")
