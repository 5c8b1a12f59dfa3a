"""Zha et al., Table 2 as a plot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reproduction.plots.colors import BLUE, INK, PALE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = 0.05
LOWEST = -6.0


def draw(page: Figure, figures: Mapping[str, Any]) -> None:
    """Draw the gain of every setting on every collection; blue if significant, cut off at -6%."""
    panels = page.subplots(1, len(figures), sharey=True)
    names = list(next(iter(figures.values()))["each setting"])
    for axes, (collection, each) in zip(panels, figures.items(), strict=True):
        for place, name in enumerate(names):
            if name not in each["each setting"]:
                continue
            gain = each["each setting"][name]
            color = BLUE if gain["p"] < LEVEL else PALE
            shown = max(gain["gain %"], LOWEST)
            axes.plot([0, shown], [place, place], "-", color=color, linewidth=2)
            axes.plot(shown, place, "o" if shown == gain["gain %"] else "<", color=color, markersize=5)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(range(len(names)), [_words(name) for name in names])
        axes.set(title=collection, xlabel="gain in DCG@5, %", xlim=(LOWEST - 0.5, 5))
    panels[0].invert_yaxis()
    panels[0].set_ylabel("procedure; p, λ_α, λ_β, K")


def _words(setting: str) -> str:
    reading, _, parameters = setting.partition(": ")
    return f"{reading}; " + ", ".join(word.partition("=")[2] for word in parameters.split())
