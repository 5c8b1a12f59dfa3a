"""The colors of the style sheet have enough contrast, and differ for people with color blindness."""

from __future__ import annotations

import re
from importlib.resources import files

import numpy as np
import pytest

STYLE = files("kinrank.study.report").joinpath("page.css").read_text("utf-8")
PAIRS = dict(re.findall(r"--([\w]+): light-dark\((#\w{6}, #\w{6})\)", STYLE))
COLORS = {name: pair.split(", ") for name, pair in PAIRS.items()}
THEMES = {"light": 0, "dark": 1}
# Linear RGB transforms for color blindness (Machado, Oliveira and Fernandes 2009, severity 1).
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}


def linear(color: str) -> np.ndarray:
    values = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(values <= 0.04045, values / 12.92, ((values + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2.2."""
    low, high = sorted(float(linear(color) @ [0.2126, 0.7152, 0.0722]) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ rgb
    f = np.cbrt(np.clip(xyz, 1e-4, None) / [0.9505, 1.0, 1.089])
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(one: str, other: str, blindness: str) -> float:
    """Return the distance in CIE Lab for a type of color blindness; 2 is just noticeable."""
    seen = [lab(np.clip(np.array(BLINDNESS[blindness]) @ linear(color), 0, 1)) for color in (one, other)]
    return float(np.linalg.norm(seen[0] - seen[1]))


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("ground", ["paper", "raised"])
@pytest.mark.parametrize("text", ["ink", "muted", "gain", "loss"])
def test_text_has_enough_contrast(theme: str, ground: str, text: str):
    at = THEMES[theme]
    assert contrast(COLORS[text][at], COLORS[ground][at]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("blindness", BLINDNESS)
def test_gains_and_losses_differ_with_color_blindness(theme: str, blindness: str):
    at = THEMES[theme]
    assert difference(COLORS["gain"][at], COLORS["loss"][at], blindness) > 15


@pytest.mark.parametrize("theme", THEMES)
def test_marks_have_enough_contrast(theme: str):
    at = THEMES[theme]
    for mark in ("gain", "gain2", "loss", "zero"):
        assert contrast(COLORS[mark][at], COLORS["raised"][at]) >= 2.5, mark
