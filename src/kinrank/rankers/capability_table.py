"""A table of all rankers and what they can do, for `kinrank train --list` and the docs."""

from __future__ import annotations

from typing import Any

from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.registry import RANKERS


def capability_table() -> str:
    """Return a table of the capabilities of all rankers with default settings, and what each capability means.

    A capability that another setting enables is marked with the name of the setting.

    Examples
    --------
    >>> print(capability_table())
    capability  kin      single ...
    explains    yes      -      ...
    """
    declared = {name: _marks(RANKERS[name]()) for name in RANKERS}
    meanings = Capabilities.meanings()
    rows = [["capability", *declared]]
    rows += [[name, *(marks[name] for marks in declared.values())] for name in meanings]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    legend = [f"{name.ljust(widths[0])}  {meaning}" for name, meaning in meanings.items()]
    return "\n".join([*lines, "", *legend])


def _marks(ranker: Any) -> dict[str, str]:
    enabling = ranker.enabling_settings
    return {name: "yes" if able else enabling.get(name, "-") for name, able in ranker.capabilities}
