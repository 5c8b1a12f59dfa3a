"""When a method gains: the gain as a map over two dials, and real collections placed by measured statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from reproduction.plots.colors import INK, ORANGE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = "BrBG"
MARKS = "Ds^vP*X"
ENSEMBLE = {
    "SER over RankSVM without penalty": "SER over RankSVM, λ = 1e-5",
    "SER over RankSVM": "SER over RankSVM, λ chosen",
    "SSER over SER": "SSER over SER",
}
"""The gains to draw, and their titles."""
LEAST = 0.01
"""The smallest gain that gets the full color."""


def draw_local(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw KNN's map over the dials, and the worlds and collections by their statistics."""
    dials, measured = page.subplots(1, 2, width_ratios=(1, 1.25))
    _heat(
        dials,
        figures["gain"],
        (figures["spread"], "how much queries differ (spread)"),
        (figures["revealed"], "how well features show it (revealed)"),
        "KNN Online over Single, NDCG@10",
    )
    _scatter(
        measured,
        figures["agreement of neighbors"],
        figures["gain"],
        {name: (each["agreement of neighbors"], each["gain"]) for name, each in figures["places"].items()},
    )
    measured.set(
        xlabel="agreement of a query with its neighbors (measured)",
        ylabel="gain in NDCG@10",
        title="generated worlds (gray) and real collections",
    )


def draw_clusters(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw the maps of Naive and Transform."""
    panels = page.subplots(1, 2)
    for axes, (method, gains) in zip(panels, figures["gain"].items(), strict=True):
        _heat(
            axes,
            gains,
            (figures["spread"], "how much queries differ (spread)"),
            (figures["revealed"], "revealed"),
            f"{method} over RankSVM, NDCG@10",
        )


def draw_atvt(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw the maps of both readings, with collections at their measured place."""
    panels = page.subplots(1, 2)
    names = {"paper": "the paper's procedure", "ours": "ours"}
    shares = np.mean(figures["share between queries"], axis=0)
    middle = np.mean([each["share"] for each in figures["places"].values()])
    for axes, (reading, gains) in zip(panels, figures["gain %"].items(), strict=True):
        _heat(
            axes,
            gains,
            (figures["level"], "level of judges, SD (share of residual variance below)"),
            (figures["documents"], "documents per query"),
            f"aTVT, {names[reading]}: gain in DCG@5, %",
            digits=1,
        )
        axes.set_xticks(
            range(len(shares)), [f"{v:g}\n{share:.2f}" for v, share in zip(figures["level"], shares, strict=True)]
        )
        for name, each in figures["places"].items():
            x = np.interp(each["share"], shares, range(len(shares)))
            y = np.interp(np.log(each["documents"]), np.log(figures["documents"]), range(len(figures["documents"])))
            # Labels of collections in the left half go to the left, so that they do not overlap.
            _mark(axes, x, y, name, left=each["share"] < middle)


def draw_ensemble(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw the maps of SER and SSER, with collections at their measured place."""
    panels = page.subplots(1, 3, sharey=True)
    limit = max(float(np.abs(figures["gain"][name]).max()) for name in ENSEMBLE)
    for axes, (name, title) in zip(panels, ENSEMBLE.items(), strict=True):
        _heat(
            axes,
            figures["gain"][name],
            (figures["queries"], "training queries"),
            (figures["shared"], "shared errors (rank correlation)"),
            title,
            limit=limit,
        )
        for mark, (label, each) in zip(MARKS, figures["places"].items(), strict=False):
            # What lies outside of the map is drawn at its border.
            x = _place(np.log(each["training queries"]), np.log(figures["queries"]))
            y = _place(each["redundancy"], figures["redundancy"])
            _hollow(axes, x, y, mark, label=label)
    panels[0].set_yticks(
        range(len(figures["shared"])),
        [f"{v:g} ({r:.2f})" for v, r in zip(figures["shared"], figures["redundancy"], strict=True)],
    )
    for axes in panels[1:]:
        axes.set_ylabel("")
    page.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8)


def _heat(
    axes: Axes,
    gains: Sequence[Sequence[float]],
    across: tuple[Sequence[float], str],
    up: tuple[Sequence[float], str],
    title: str,
    digits: int = 3,
    limit: float = LEAST,
) -> None:
    """Draw a grid of gains with its numbers; 0 is white, and gains of at least `limit` may get the full color."""
    values = np.array(gains)
    limit = max(float(np.abs(values).max()), limit)
    axes.imshow(values, origin="lower", aspect="auto", cmap=COLORS, vmin=-limit, vmax=limit)
    for row, column in np.ndindex(values.shape):
        dark = abs(values[row, column]) > 0.6 * limit
        axes.text(
            column,
            row,
            f"{values[row, column]:+z.{digits}f}",  # z: no "-0.000"
            ha="center",
            va="center",
            fontsize=7,
            color="white" if dark else INK,
        )
    axes.set_xticks(range(len(across[0])), [f"{value:g}" for value in across[0]])
    axes.set_yticks(range(len(up[0])), [f"{value:g}" for value in up[0]])
    axes.set_xlabel(across[1])
    axes.set_ylabel(up[1])
    axes.set_title(title, fontsize=10)
    axes.grid(visible=False)


def _scatter(axes: Axes, x: Any, y: Any, places: Mapping[str, tuple[float, float]]) -> None:
    """Draw worlds in gray and collections with a marker each; small gains are spread out."""
    axes.plot(np.ravel(x), np.ravel(y), "o", color="#999999", markersize=4)
    axes.axhline(0, color=INK, linewidth=0.8)
    for (name, (at, gain)), mark in zip(places.items(), MARKS, strict=False):
        axes.plot(at, gain, mark, color=ORANGE, markersize=8, markeredgecolor="white", label=name, linestyle="none")
    axes.set_yscale("symlog", linthresh=0.01)
    ticks = (-0.01, -0.005, 0.0, 0.005, 0.01, 0.1)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.legend(fontsize=7, loc="lower right")


def _mark(axes: Axes, x: float, y: float, name: str, *, left: bool) -> None:
    _hollow(axes, x, y, "D")
    axes.annotate(
        name,
        (x, y),
        xytext=(-6 if left else 6, 5),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=8,
        color=INK,
    )


def _place(value: float, ticks: Sequence[float]) -> float:
    """Return the position of a value among ticks that are drawn one apart."""
    return float(np.interp(value, ticks, range(len(ticks)), left=-0.4, right=len(ticks) - 0.6))


def _hollow(axes: Axes, x: float, y: float, mark: str, label: str | None = None) -> None:
    """Draw a mark that leaves the number of its cell legible."""
    axes.plot(x, y, mark, color=ORANGE, fillstyle="none", markersize=9, mew=1.6, label=label, linestyle="none")
