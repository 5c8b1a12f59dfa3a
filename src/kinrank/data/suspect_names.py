"""Names of columns that are hardly ever features: grades, clicks and ids."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_GRADES = "labels? grades? targets? judge?ments? relevance relevant rel qrels? is_relevant y_true"
_CLICKS = "clicks? clicked purchased add_to_cart"
_IDS = "id ids uuid sku asin ean gtin qid docid docno"
_MEANINGS = {
    "a grade": rf"({_GRADES.replace(' ', '|')})(_(label|grade|score))?",
    "clicks on the document": rf"((n|num|total)_)?({_CLICKS.replace(' ', '|')})",
    "an id": rf"(\w+_)?({_IDS.replace(' ', '|')})",
}


def plain_name(name: str) -> str:
    """Return a name in lower case, with underscores between its words.

    Examples
    --------
    >>> plain_name("Product-ID "), plain_name("Unnamed: 0")
    ('product_id', 'unnamed:_0')
    """
    return re.sub(r"[\s.-]+", "_", name.strip().lower())


def suspect_names(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that looks like something other than a feature, and what it looks like.

    Examples
    --------
    >>> list(suspect_names(["bm25", "Label", "product_id", "n_clicks", "title_score"]))
    [('Label', 'a grade'), ('product_id', 'an id'), ('n_clicks', 'clicks on the document')]
    """
    for name in names:
        for meaning, pattern in _MEANINGS.items():
            if re.fullmatch(pattern, plain_name(name)):
                yield name, meaning
                break
