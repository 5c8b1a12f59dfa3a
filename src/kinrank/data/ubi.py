"""User Behavior Insights (UBI) 1.3: which attributes of a query change the list that it gets."""

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
