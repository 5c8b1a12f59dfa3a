"""Compare the output shown in a document with the output of its code, with tolerance for measured numbers.

- ``...`` stands for any text, and runs of whitespace are equal, as in doctest.
- Decimals may differ by 0.02 or 10%, whichever is more, but not in their sign. Integers must be equal.
- Times may have any value: numbers followed by ``s`` or ``ms``.
"""

from __future__ import annotations

import doctest
import re

NUMBER = r"(?<![\w.])[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?(?!\w)"
_PARTS = re.compile(rf"(?P<time>{NUMBER})(?=\s+m?s\b)|(?P<number>{NUMBER})|(?P<dots>\.\.\.)|(?P<space>\s+)")


class TolerantChecker(doctest.OutputChecker):
    """Accepts output that differs from the shown one in measured numbers only.

    Parameters
    ----------
    any_numbers
        Whether every number may have any value.
    """

    def __init__(self, *, any_numbers: bool = False) -> None:
        self.any_numbers = any_numbers

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        """Return whether the output is as shown."""
        if super().check_output(want, got, optionflags):
            return True
        pattern, numbers = _pattern(want.strip())
        match = re.fullmatch(pattern, got.strip(), re.DOTALL)
        return match is not None and (self.any_numbers or all(map(_close, numbers, match.groups())))


def _pattern(shown: str) -> tuple[str, list[str]]:
    """Return a regular expression for the shown text, and the numbers that its groups should capture."""
    pattern, numbers, position = "", [], 0
    for part in _PARTS.finditer(shown):
        pattern += re.escape(shown[position : part.start()])
        position = part.end()
        if part["number"]:
            pattern += f"({NUMBER})"
            numbers.append(part["number"])
        elif part["time"]:
            pattern += NUMBER
        else:
            pattern += ".*?" if part["dots"] else r"\s+"
    return pattern + re.escape(shown[position:]), numbers


def _close(shown: str, got: str) -> bool:
    if "." not in shown and "e" not in shown:
        return shown == got
    a, b = (float(number.replace(",", "")) for number in (shown, got))
    return abs(a - b) <= max(0.02, 0.1 * abs(a)) and a * b >= 0
