"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a Markdown table; numbers are formatted by `number`, None is an empty cell.

    Examples
    --------
    >>> print(table(["method", "MAP"], [["RankSVM", 0.46], ["Naive", None]]))
    | method | MAP |
    |---|---|
    | RankSVM | 0.46 |
    | Naive |  |
    """
    lines = [_line(header), "|" + "---|" * len(header)]
    return "\n".join(lines + [_line(row) for row in rows])


def mapping_table(corner: str, rows: Mapping[str, Mapping[str, Any]], columns: Sequence[str], digits: int = 4) -> str:
    """Return a table with one row per name; columns that a row lacks stay empty.

    Fractions are shown with `digits` decimals. P-values, in columns whose name starts with p, keep their own digits.

    Examples
    --------
    >>> print(mapping_table("method", {"RankSVM": {"MAP": 0.46, "p": 2e-11}}, ["MAP", "P@1", "p"]))
    | method | MAP | P@1 | p |
    |---|---|---|---|
    | RankSVM | 0.4600 |  | 2e-11 |
    """

    def cell(row: Mapping[str, Any], column: str) -> object:
        value = row.get(column)
        fixed = isinstance(value, float) and column.partition(" ")[0] != "p"
        return f"{value:.{digits}f}" if fixed else value

    return table([corner, *columns], [[name, *(cell(row, column) for column in columns)] for name, row in rows.items()])


def details(summary: str, *blocks: str) -> str:
    """Return blocks folded away under a summary line.

    Examples
    --------
    >>> print(details("More", "text"))
    <details markdown="1">
    <summary>More</summary>
    <BLANKLINE>
    text
    <BLANKLINE>
    </details>
    """
    return "\n\n".join([f'<details markdown="1">\n<summary>{summary}</summary>', *blocks, "</details>"])


def number(value: float) -> str:
    """Format a number: integers with commas, fractions with the digits they were rounded to.

    Examples
    --------
    >>> [number(value) for value in (1692, 0.4645, 1e-05, 2.0, 0.00055)]
    ['1,692', '0.4645', '1e-05', '2', '0.00055']
    """
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}" if value < 1 else f"{value:.6g}"


def _line(cells: Iterable[object]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(cell: object) -> str:
    if cell is None:
        return ""
    return number(cell) if isinstance(cell, (int, float)) else str(cell).replace("|", "\\|")
