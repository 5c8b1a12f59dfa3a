"""`kinrank.Memory` as a part of other frameworks: one module for each, which needs the extra of its name.

Each ranks what a retriever of the framework found, keeps ids and metadata, and learns from its documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

REASON = "kinrank_reason"
"""The metadata in which a document has the reason for its place. It quotes earlier questions of other people."""


def scores_of(values: Sequence[Any]) -> Sequence[float] | None:
    """Return the scores of hits; None if one of them has none: then their order counts.

    Examples
    --------
    >>> scores_of([0.7, 0.2]), scores_of([0.7, None])
    ([0.7, 0.2], None)
    """
    return values if all(isinstance(value, int | float) for value in values) else None
