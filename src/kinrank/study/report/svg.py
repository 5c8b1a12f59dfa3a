"""Inline SVG: elements, scales and axes.

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

WIDE, NARROW = 720, 340
"""Widths that a chart is drawn at: for desktop and print, and for a phone."""


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
    >>> Scale(3, 2000, 0, 300, log=True).ticks()
    [10.0, 100.0, 1000.0]
    """

    low: float
    high: float
    """Values at both ends."""
    start: float
    end: float
    """Pixels at both ends."""
    log: bool = False
    """Whether the scale is logarithmic."""

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        low, high, at = (
            (math.log(v) for v in (self.low, self.high, value)) if self.log else (self.low, self.high, value)
        )
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, about: int = 4) -> list[float]:
        """Return about that many round values."""
        if self.log:
            return self._log_ticks()
        raw = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(nice * power for nice in (1, 2, 2.5, 5, 10) if nice * power >= raw * 0.99)
        first = math.ceil(self.low / step - 1e-9)
        return [round(i * step, 12) for i in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _log_ticks(self) -> list[float]:
        """Return powers of ten, and 2 and 5 times those if there are fewer than three."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for steps in ((1,), (1, 2, 5)):
            found = [float(f"{step}e{power}") for power in powers for step in steps]
            found = [value for value in found if self.low * 0.999 <= value <= self.high * 1.001]
            if len(found) > 2:
                break
        return found


@dataclass(frozen=True)
class Frame:
    """A drawing with margins; its scales cover the area inside them."""

    width: float
    height: float
    left: float = 56
    right: float = 12
    top: float = 12
    bottom: float = 40

    def x(self, low: float, high: float, *, log: bool = False) -> Scale:
        """Return a scale from left to right."""
        return Scale(low, high, self.left, self.width - self.right, log)

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
