"""Geng et al., Figures 7, 8 and 9, and Table 1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reproduction.plots.colors import BLUE, GREEN, INK, METHODS, ORANGE, PALE, SKY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = "oDs^v"


def draw_methods(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw every measure and method, for both sizes."""
    panels = page.subplots(1, len(figures), sharey=True)
    for axes, (size, each) in zip(panels, figures.items(), strict=True):
        measures = list(each["all seeds"]["Single"])
        for position, (method, color) in enumerate(METHODS.items()):
            shifted = [
                x + (position - 2) * 0.14 for x in range(len(measures))
            ]  # side by side, so that no marker hides another
            values = list(each["all seeds"][method].values())
            axes.plot(shifted, values, MARKS[position], color=color, label=method, markersize=6)
        axes.set_xticks(range(len(measures)), [name.removesuffix(" NDCG") for name in measures])
        axes.set(title=f"{size} queries")
        axes.grid(visible=False, axis="x")
    page.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS))


def draw_over_k(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw the quality of the three modes over k, and the change ratios of both sizes over k / m."""
    small, large = (size for size in figures if size != "shape")
    quality, ratio = page.subplots(1, 2)
    by_k = figures[small]["all modes by k"]
    for mode in ("KNN Online", "KNN Offline-1", "KNN Offline-2"):
        for measure, style in (("NDCG@10", "o-"), ("NDCG@5", "o--")):
            values = [modes[mode][measure] for modes in by_k.values()]
            label = f"{mode}, {measure}"
            quality.plot([int(k) for k in by_k], values, style, color=METHODS[mode], label=label, markersize=3)
    quality.set(xlabel=f"k (of m = {max(map(int, by_k)):,}; k = m is Single)", title="quality over k")
    for size, style in ((small, "o-"), (large, "s--")):
        for mode, values in figures[size]["change ratio by k"].items():
            m = max(map(int, values))
            shares = [int(k) / m for k in values]
            ratio.plot(shares, list(values.values()), style, color=METHODS[mode], label=f"{mode}, {size}", markersize=4)
    ratio.set(xlabel="k / m", title="change ratio γ against KNN Online")
    quality.legend(ncols=1, fontsize=8)
    ratio.legend(fontsize=8)


def draw_letor(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw the quality of the three modes over k / m, one panel per LETOR collection."""
    for axes, (name, each) in zip(page.subplots(1, len(figures)), figures.items(), strict=True):
        for mode, measures in each["by k / m"].items():
            for measure, style in (("NDCG@10", "o-"), ("NDCG@5", "o--")):
                curve = measures[measure]
                shares = [float(share) for share in curve]
                label = f"{mode}, {measure}"
                axes.plot(shares, list(curve.values()), style, color=METHODS[mode], label=label, markersize=3)
        axes.set(xscale="log", xlabel=f"k / m (m = {each['m']:,}; 1 is Single)", title=name)
        axes.set_xticks([share for share in shares if share not in (0.53, 0.8)])  # their labels would overlap
        axes.xaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
    page.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=len(METHODS) - 2, fontsize=8)


def draw_cost(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw the time of the steps of a query over n, m and k, and of the offline models over k."""
    colors = {"query feature": ORANGE, "rank": INK, "k nearest": BLUE, "the nearest": SKY, "offline model": GREEN}
    names = {"n": "n, candidates", "m": "m, judged queries", "k": "k, neighbors"}
    *steps, training = page.subplots(1, 4)
    for axes, (size, label) in zip(steps, names.items(), strict=True):
        for step, color in colors.items():
            curve = figures["milliseconds"].get(f"{step}, over {size}")
            if curve:
                axes.plot([int(x) for x in curve], list(curve.values()), "o-", color=color, label=step, markersize=3)
        axes.set(xscale="log", yscale="log", xlabel=label, ylim=(0.009, 40))
        axes.legend(fontsize=8)
    steps[0].set(ylabel="milliseconds")
    for name, label, color in (
        ("the paper's estimate, c = 1.2", "k (k/m)^0.2", PALE),
        ("offline models over a global fit, over k", "measured", BLUE),
    ):
        curve = figures[name]
        training.plot([int(k) for k in curve], list(curve.values()), "o-", color=color, label=label, markersize=3)
    training.set(xscale="log", yscale="log", xlabel=names["k"], title="m models, in global fits")
    training.title.set_fontsize(10)
    training.legend(fontsize=8)
    for axes in (*steps, training):
        sizes = axes.lines[0].get_xdata()
        axes.set_xticks([sizes[0], sizes[-1]], [f"{size:,}" for size in (sizes[0], sizes[-1])])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()


def draw_movies(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw NDCG@10 on movie search over k, for two descriptions."""
    axes = page.subplots()
    names = {"mean": "the paper's description: the mean", "summaries+text": "summaries and query text"}
    for (name, curve), color in zip(figures["quality by k"].items(), (ORANGE, BLUE), strict=True):
        axes.plot([int(k) for k in curve], list(curve.values()), "o-", color=color, label=names[name], markersize=4)
    single = figures["methods"]["Single RankRLS"]["NDCG@10"]
    axes.axhline(single, color=INK, linestyle=":", linewidth=1.2, label="Single")
    counts = [int(k) for k in figures["quality by k"]["mean"]]
    axes.set(xscale="log", xlabel="k, of 11,341 judged queries", ylabel="NDCG@10", title="movie search, KNN Online")
    axes.set_xticks(counts, [f"{k:,}" for k in counts])
    axes.minorticks_off()
    axes.legend()
