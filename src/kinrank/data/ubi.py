"""Logs of what people do: which attributes of a query change its list (UBI 1.3), and the units of times."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

LIST_ATTRIBUTES = r"(?i)(filter|facet|sort|order|page|offset|^from$|^start$)"
"""Names of query attributes that change the list."""
SAME_LIST = ("", "0", "[]", "{}", "null", "false", "relevance", "_score", "score")
"""Values of these attributes that do not."""
PAGE_SIZE = r"(?i)(size|limit|per_page)"
FIRST_TIME, LAST_TIME = 788_918_400, 4_102_444_800
"""Seconds since 1970 of 1995 and 2100. Any time between them tells by its size in which unit it is given."""
UNITS = (10**3, 10**6, 10**9)
"""Milliseconds, microseconds and nanoseconds in a second."""


def epoch_seconds(number: float) -> float:
    """Return the seconds since 1970 of a number of seconds, milliseconds, microseconds or nanoseconds.

    Examples
    --------
    >>> epoch_seconds(1_790_000_000), epoch_seconds(1_790_000_000_500), epoch_seconds(1.79e15)
    (1790000000, 1790000000.5, 1790000000.0)
    """
    within = [unit for unit in UNITS if FIRST_TIME * unit <= number <= LAST_TIME * unit]
    return number / within[0] if within else number


def changes_list(attributes: Mapping[str, Any]) -> bool:
    """Return whether a list is filtered, sorted or a later page, according to the attributes of its query.

    Examples
    --------
    >>> changes_list({"page": 1, "page_size": 20, "filters": []}), changes_list({"filters": ["dvd"]})
    (False, True)
    """
    return any(_changes(name, value) for name, value in attributes.items() if value is not None)


def _changes(name: str, value: Any) -> bool:
    if not re.search(LIST_ATTRIBUTES, name) or re.search(PAGE_SIZE, name):
        return False
    text = value if isinstance(value, str) else json.dumps(value)
    return text.lower() not in SAME_LIST and not (re.search("(?i)page", name) and text == "1")
