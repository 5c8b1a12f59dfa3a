"""The days of evidence."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def first_and_last(day: NDArray[Any]) -> tuple[int, int] | None:
    """Return the first and the last of some days; None if none is dated."""
    dated = day[day >= 0]
    return (int(dated.min()), int(dated.max())) if len(dated) else None


def joined_days(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the days from the first to the last of both."""
    return a or b if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))
