"""Hoi and Jin, Figures 1, 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reproduction.plots.colors import BLUE, GREEN, INK, ORANGE, PALE, PURPLE, SKY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METHODS = {
    "best ranker": ("best ranker", PALE),
    "RankSVM (minmax)": ("RankSVM, 0..1", INK),
    "SER (minmax)": ("SER, 0..1", ORANGE),
    "SSER (minmax)": ("SSER, 0..1", GREEN),
    "RankSVM (none)": ("RankSVM, raw", PURPLE),
    "SER (none)": ("SER, raw", SKY),
    "SSER (none)": ("SSER, raw", BLUE),
}


def draw(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw MAP, precision by rank, and MAP by γ."""
    quality, precision, gamma = page.subplots(1, 3)
    for place, (method, (label, color)) in enumerate(METHODS.items()):
        row = figures["table"][method]
        quality.plot(row["MAP"], place, "o", color=color, markersize=8)
        precision.plot(
            range(1, 11), [row[f"P@{k}"] for k in range(1, 11)], "o-", color=color, label=label, markersize=3
        )
    quality.set_yticks(range(len(METHODS)), [label for label, _ in METHODS.values()])
    quality.set(title="MAP", ylim=(-0.5, len(METHODS) - 0.5))
    precision.set(title="precision", xlabel="rank")
    precision.legend(fontsize=8)
    for how, label, color in (
        ("none", "raw scores", BLUE),
        ("minmax", "0..1", GREEN),
        ("standard", "standard", ORANGE),
    ):
        curve = figures["MAP by gamma"][f"{how} test"]
        gamma.plot(range(len(curve)), curve, "o-", color=color, label=label, markersize=3)
    gamma.set_xticks(range(len(figures["gammas"])), [f"{value:g}" for value in figures["gammas"]], rotation=45)
    gamma.set(title="MAP of SSER by γ (0 is SER)", xlabel="γ")
    gamma.legend(fontsize=8)
