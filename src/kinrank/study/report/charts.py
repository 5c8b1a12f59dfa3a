"""Charts of a report as inline SVG: pure functions from numbers to markup, with text alternatives.

Charts have class names but no colors or styles. The style sheet of the page colors them, so that one drawing works in
light mode, dark mode and print, and the page can forbid inline styles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float64
from kinrank.measure import PairedComparison
from kinrank.study.report.collect import Report

WIDE, NARROW = 720, 340
"""Widths that a chart is drawn at: for desktop and print, and for a phone."""
_ROW = 34.0
_MAX_BARS = 400  # on each side; a screen shows no more
_GAP = 0.2  # width for unchanged queries, relative to those that change
_MAX_LABEL_WIDTH = {True: 118.0, False: 260.0}  # on a phone, and elsewhere


def element(name: str, *children: str, **attributes: object) -> str:
    """Return an element. Attribute values are escaped, children must be markup.

    ``class_`` becomes ``class``, other underscores become hyphens, and attributes that are None are left out.

    Examples
    --------
    >>> element("text", escaped("R&D"), class_="label", text_anchor="end", x=1.25)
    '<text class="label" text-anchor="end" x="1.2">R&amp;D</text>'
    """
    markup = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{markup}>{''.join(children)}</{name}>"


def escaped(text: object) -> str:
    """Escape text for use as markup."""
    return escape(str(text))


def _plain(value: object) -> str:
    """Format numbers to a tenth of a pixel, which keeps the file small."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float | np.floating) else str(value)


@dataclass(frozen=True)
class Scale:
    """Map values to pixels along one axis.

    Examples
    --------
    >>> Scale(0, 10, 100, 200)(5)
    150.0
    >>> Scale(0, 0.013, 0, 300).ticks()
    [0.0, 0.005, 0.01]
    """

    low: float
    high: float
    """Values at both ends."""
    start: float
    end: float
    """Pixels at both ends."""

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 4) -> list[float]:
        """Return about that many round values."""
        raw = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= raw * 0.99)
        first = math.ceil(self.low / step - 1e-9)
        return [round(i * step, 12) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True)
class Frame:
    """A drawing with margins; its scales cover the area inside them."""

    width: float
    height: float
    left: float = 56
    right: float = 12
    top: float = 12
    bottom: float = 40

    def x(self, low: float, high: float) -> Scale:
        """Return a scale from left to right."""
        return Scale(low, high, self.left, self.width - self.right)

    def y(self, low: float, high: float) -> Scale:
        """Return a scale from the bottom up."""
        return Scale(low, high, self.height - self.bottom, self.top)

    def x_axis(self, scale: Scale, spec: str, title: str, about: int = 5) -> str:
        """Return ticks and grid lines below the drawing, with a title."""
        base = self.height - self.bottom
        parts = []
        for value in scale.ticks(about):
            at = scale(value)
            parts.append(element("line", class_="grid", x1=at, x2=at, y1=self.top, y2=base))
            parts.append(element("text", escaped(format_number(value, spec)), class_="tick middle", x=at, y=base + 16))
        middle = (self.left + self.width - self.right) / 2
        parts.append(element("text", escaped(title), class_="axis middle", x=middle, y=base + 34))
        return "".join(parts)

    def y_axis(self, scale: Scale, spec: str, about: int = 4) -> str:
        """Return ticks and grid lines left of the drawing."""
        parts = []
        for value in scale.ticks(about):
            at = scale(value)
            parts.append(element("line", class_="grid", x1=self.left, x2=self.width - self.right, y1=at, y2=at))
            parts.append(
                element("text", escaped(format_number(value, spec)), class_="tick end", x=self.left - 8, y=at + 4)
            )
        return "".join(parts)


def format_number(value: float, spec: str) -> str:
    """Format a number with a real minus sign and without a sign for zero.

    Examples
    --------
    >>> format_number(-0.5, "+.2f"), format_number(0.0, "+.2f"), format_number(1200, ",.0f")
    ('\u22120.50', '0', '1,200')
    """
    return "0" if value == 0 and spec.startswith("+") else format(value, spec).replace("-", "\u2212")


def picture(draw: Callable[[float], tuple[str, float]], alt: str) -> str:
    """Return a chart at both widths; the style sheet shows one of them.

    Parameters
    ----------
    draw
        Returns the markup and the height of the drawing for a width.
    alt
        Text alternative.
    """
    drawn = []
    for size, width in (("wide", WIDE), ("narrow", NARROW)):
        markup, height = draw(float(width))
        drawn.append(
            element(
                "svg",
                markup,
                class_=f"chart {size}",
                role="img",
                aria_label=alt,
                viewBox=f"0 0 {width} {_plain(float(height))}",
            )
        )
    return "".join(drawn)


def polyline(xs: Sequence[float], ys: Sequence[float]) -> str:
    """Return path data through points."""
    return "M" + "L".join(f"{_plain(float(x))} {_plain(float(y))}" for x, y in zip(xs, ys, strict=True))


def padded(values: ArrayLike, share: float = 0.08) -> tuple[float, float]:
    """Return the range of some numbers with padding; never empty.

    Examples
    --------
    >>> padded([1.0, 2.0], 0.5)
    (0.5, 2.5)
    """
    array: Float64 = np.asarray(values, dtype=np.float64)
    low, high = float(array.min()), float(array.max())
    padding = (high - low) * share or abs(high) * share or share
    return low - padding, high + padding


def gain_bars(gains: Float64, measure: str) -> str:
    """Draw the gain of each query as sorted bars; adjacent queries share a bar if there are many.

    Unchanged queries, often most of all, are drawn as a gap of limited width.

    Parameters
    ----------
    gains
        Gain of each query.
    measure
        Name of the measure.
    """
    ordered = np.sort(gains)[::-1]
    won, lost = ordered[ordered > 0], ordered[ordered < 0]
    tied = len(gains) - len(won) - len(lost)
    gap = min(tied, max(1.0, _GAP * (len(won) + len(lost))))
    reach = float(np.abs(gains).max()) or 1.0

    def draw(width: float) -> tuple[str, float]:
        frame = Frame(width, 260 if width > NARROW else 220, bottom=30, top=10, left=48)
        across, up = frame.x(0, len(won) + gap + len(lost)), frame.y(-reach * 1.05, reach * 1.05)
        zero = up(0)
        parts = [
            frame.y_axis(up, "+.2f"),
            element("path", class_="area gain", d=_bars(won, 0, across, up)),
            element("path", class_="area loss", d=_bars(lost, len(won) + gap, across, up)),
            element("line", class_="zero", x1=frame.left, x2=width - frame.right, y1=zero, y2=zero),
        ]
        for count, middle, what, at in (
            (len(won), len(won) / 2, "win", up(-reach * 0.15)),
            # On the side with more room.
            (tied, len(won) + gap / 2, "tie", up(reach * (-0.15 if len(won) >= len(lost) else 0.1))),
            (len(lost), len(won) + gap + len(lost) / 2, "lose", up(reach * 0.1)),
        ):
            if count:
                parts.append(
                    element("text", escaped(f"{count:,} {what}"), class_="count middle", x=across(middle), y=at)
                )
        title = escaped("queries, from the largest gain to the largest loss")
        parts.append(element("text", title, class_="axis middle", x=(frame.left + width) / 2, y=frame.height - 8))
        return "".join(parts), frame.height

    best, worst = (format_number(float(end), "+.2f") for end in (gains.max(), gains.min()))
    alt = (
        f"Sorted bars of the change in {measure} of each query: {len(won):,} queries win, {tied:,} tie, {len(lost):,} "
        f"lose; the best change is {best}, the worst {worst}."
    )
    return picture(draw, alt)


def _bars(values: Float64, start: float, across: Scale, up: Scale) -> str:
    """Return path data of adjacent bars; values share a bar if there are more than `_MAX_BARS`."""
    if not len(values):
        return ""
    edges = np.unique(np.linspace(0, len(values), min(len(values), _MAX_BARS) + 1).astype(int))
    heights = np.add.reduceat(values, edges[:-1]) / np.diff(edges)
    at = [across(start + edge) for edge in edges.tolist()]
    zero = up(0)
    bars = zip(at[:-1], at[1:], heights.tolist(), strict=True)
    return "".join(f"M{left:.1f} {zero:.1f}V{up(height):.1f}H{right:.1f}V{zero:.1f}" for left, right, height in bars)


def intervals(rows: Sequence[tuple[str, PairedComparison]], alt: str) -> str:
    """Draw mean gains with confidence intervals, one per row, around a line at zero."""
    ends = [0.0, *(end for _, gain in rows for end in gain.interval)]

    def draw(width: float) -> tuple[str, float]:
        left = _label_width([label for label, _ in rows], width)
        frame = Frame(width, 46 + _ROW * len(rows), left=left, right=64 if width > NARROW else 14, top=6, bottom=40)
        across = frame.x(*padded(ends))
        zero = across(0)
        parts = [
            frame.x_axis(across, "+.3g", "mean change per query", 5 if width > NARROW else 3),
            element("line", class_="zero", x1=zero, x2=zero, y1=frame.top, y2=frame.height - frame.bottom),
        ]
        for position, (label, gain) in enumerate(rows):
            y = frame.top + _ROW * (position + 0.5)
            low, high = gain.interval
            kind = "gain" if low > 0 else "loss" if high < 0 else "unsure"
            parts += [
                element("text", escaped(_shorten(label, left)), class_="row end", x=left - 10, y=y + 4),
                element("line", class_=f"whisker {kind}", x1=across(low), x2=across(high), y1=y, y2=y),
                element("circle", class_=f"dot {kind}", cx=across(gain.mean_difference), cy=y, r=5),
            ]
            if width > NARROW:
                value = escaped(format_number(gain.mean_difference, "+.4f"))
                parts.append(element("text", value, class_="tick end", x=width - 4, y=y + 4))
        return "".join(parts), frame.height

    return picture(draw, alt)


def _label_width(labels: Sequence[str], width: float) -> float:
    """Return the width of the longest label, up to a maximum."""
    return min(_MAX_LABEL_WIDTH[width <= NARROW], 28 + 7.0 * max(map(len, labels)))


def _shorten(label: str, width: float) -> str:
    """Shorten a label to a width, at about seven pixels per letter."""
    most = int((width - 14) / 7)
    return label if len(label) <= most else label[: most - 1] + "…"


def figures_of(report: Report) -> dict[str, str]:
    """Return SVG markup by template name."""
    measure, gains = str(report.measure), report.gains
    rows = [
        (each.name, report.comparison.difference(each.name, report.measure).paired)
        for each in report.comparison.entrants[1:]
    ]
    values = "; ".join(f"{name} {format_number(gain.mean_difference, '+.4f')}" for name, gain in rows)
    return {
        "entrants": intervals(rows, f"Change in {measure} by ranker: {values}."),
        "gains": gain_bars(gains[~np.isnan(gains)], measure),
    }
