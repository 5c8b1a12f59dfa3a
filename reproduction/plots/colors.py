"""A color-blind safe palette (Okabe and Ito)."""

from __future__ import annotations

INK = "#333333"
PALE = "#b5b5b5"
BLUE, ORANGE, GREEN, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#aa4499", "#56b4e9"
METHODS = {
    "Single": PALE,
    "QC": INK,
    "KNN Online": BLUE,
    "KNN Offline-1": ORANGE,
    "KNN Offline-2": GREEN,
}
