"""Zha et al., Table 2 as a plot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reproduction.plots.colors import BLUE, INK, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.05


def draw(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw the gain of every setting on every collection; blue if significant."""
    panels = page.subplots(1, len(figures), sharey=True)
    for axes, (collection, each) in zip(panels, figures.items(), strict=True):
        settings = each["each setting"]
        for place, gain in enumerate(settings.values()):
            color = BLUE if gain["p"] < LEVEL else PALE
            axes.plot([0, gain["gain %"]], [place, place], "-", color=color, linewidth=2)
            axes.plot(gain["gain %"], place, "o", color=color, markersize=5)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(settings)), [_words(name) for name in settings])
        axes.set(title=collection, xlabel="gain in DCG@5, %")
    panels[0].invert_yaxis()
    panels[0].set_ylabel("p, λ_α, λ_β")


def _words(setting: str) -> str:
    return ", ".join(word.partition("=")[2] for word in setting.split())
