"""Inline SVG by hand: elements, scales, axes.

The charts of a report are markup with class names and no colors or styles of their own. The page's style sheet
colors them, so one drawing serves light, dark and print, and the page can forbid every inline style.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import ArrayLike

from kinrank.arrays import Float64

WIDE, NARROW = 720, 340
"""Widths that a chart is drawn at: for a desk or a sheet of paper, and for a phone."""


def element(name: str, *children: str, **attributes: object) -> str:
    """An element; attribute values are escaped, children are markup already.

    ``class_`` is ``class``, and other underscores are hyphens; None leaves an attribute out.

    Examples
    --------
    >>> element("text", words("R&D"), class_="label", text_anchor="end", x=1.25)
    '<text class="label" text-anchor="end" x="1.2">R&amp;D</text>'
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{said}>{''.join(children)}</{name}>"


def words(text: object) -> str:
    """Text that may say anything, as markup that says just that."""
    return escape(str(text))


def _plain(value: object) -> str:
    """Numbers to a tenth of a pixel: more would only make the file larger."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float | np.floating) else str(value)


@dataclass(frozen=True)
class Scale:
    """Values to pixels along one axis.

    Attributes
    ----------
    low, high : float
        The values at both ends.
    start, end : float
        The pixels there.
    log : bool
        Whether equal distances are equal ratios.

    Examples
    --------
    >>> Scale(0, 10, 100, 200)(5)
    150.0
    >>> Scale(0, 0.013, 0, 300).ticks()
    [0.0, 0.005, 0.01]
    >>> Scale(3, 2000, 0, 300, log=True).ticks()
    [10.0, 100.0, 1000.0]
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        low, high, at = (
            (math.log(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, about: int = 4) -> list[float]:
        """Round values, about as many as asked for."""
        if self.log:
            return self._ratios()
        raw = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= raw * 0.99)
        first = math.ceil(self.low / step - 1e-9)
        return [round(i * step, 12) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _ratios(self) -> list[float]:
        """Powers of ten; halves and fifths of them as well where there are fewer than three."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 2, 5)):
            found = [float(f"{step}e{power}") for power in powers for step in steps]
            found = [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
            if len(found) > 2:
                break
        return found


@dataclass(frozen=True)
class Frame:
    """A drawing with its margins; scales are made for the room inside them."""

    width: float
    height: float
    left: float = 56
    right: float = 12
    top: float = 12
    bottom: float = 40

    def x(self, low: float, high: float, *, log: bool = False) -> Scale:
        """A scale from left to right."""
        return Scale(low, high, self.left, self.width - self.right, log)

    def y(self, low: float, high: float) -> Scale:
        """A scale from the bottom up."""
        return Scale(low, high, self.height - self.bottom, self.top)

    def x_axis(self, scale: Scale, form: str, title: str, about: int = 5) -> str:
        """Ticks with grid lines under the drawing, and what they count."""
        base = self.height - self.bottom
        parts = []
        for value in scale.ticks(about):
            at = scale(value)
            parts.append(element("line", class_="grid", x1=at, x2=at, y1=self.top, y2=base))
            parts.append(element("text", words(format_number(value, form)), class_="tick middle", x=at, y=base + 16))
        middle = (self.left + self.width - self.right) / 2
        parts.append(element("text", words(title), class_="axis middle", x=middle, y=base + 34))
        return "".join(parts)

    def y_axis(self, scale: Scale, form: str, about: int = 4) -> str:
        """Ticks with grid lines left of the drawing."""
        parts = []
        for value in scale.ticks(about):
            at = scale(value)
            parts.append(element("line", class_="grid", x1=self.left, x2=self.width - self.right, y1=at, y2=at))
            parts.append(
                element("text", words(format_number(value, form)), class_="tick end", x=self.left - 8, y=at + 4)
            )
        return "".join(parts)


def format_number(value: float, form: str) -> str:
    """A number for people: a real minus sign, and nothing before a zero.

    Examples
    --------
    >>> format_number(-0.5, "+.2f"), format_number(0.0, "+.2f"), format_number(1200, ",.0f")
    ('\u22120.50', '0', '1,200')
    """
    return "0" if value == 0 and form.startswith("+") else format(value, form).replace("-", "\u2212")


def picture(draw: Callable[[float], tuple[str, float]], alt: str) -> str:
    """A chart at both widths, of which the style sheet shows one.

    Parameters
    ----------
    draw
        Markup and height of the drawing at a width.
    alt
        What a reader who cannot see it should know.
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
    """Path data through points."""
    return "M" + "L".join(f"{_plain(float(x))} {_plain(float(y))}" for x, y in zip(xs, ys, strict=True))


def padded(values: ArrayLike, share: float = 0.08) -> tuple[float, float]:
    """The range of some numbers with a little air; never empty.

    Examples
    --------
    >>> padded([1.0, 2.0], 0.5)
    (0.5, 2.5)
    """
    array: Float64 = np.asarray(values, dtype=np.float64)
    low, high = float(array.min()), float(array.max())
    air = (high - low) * share or abs(high) * share or share
    return low - air, high + air
