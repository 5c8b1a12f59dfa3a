"""Local models, Figure 4: how many queries have how many relevant documents, and the shares of the difficulty levels.

The paper calls a query hard with fewer than 4 relevant documents and easy with more than 20; its shares are those of
easy from 20 on, so both are counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.measure.difficulty import LEVELS, difficulty_levels
from reproduction.data_folder import DataFolder, letor_files
from reproduction.part import Findings, Part, Piece
from reproduction.parts.cluster_methods import COLLECTIONS

HARD_BELOW, EASY_FROM = 4, (20, 21)


def counted(collection: str, data: DataFolder) -> Findings:
    """Queries by number of relevant documents, and percent of queries at each level."""
    queries = QuerySet.concat([test for _, _, test in data.letor_folds(collection)])
    relevant = np.add.reduceat(queries.grades >= 1, queries.offsets[:-1])
    shares = {}
    for easy in EASY_FROM:
        levels = difficulty_levels(queries.grades, queries.offsets, hard_below=HARD_BELOW, easy_above=easy - 1)
        shares[f"easy from {easy}"] = {name: round(100 * float(np.mean(levels == name)), 1) for name in LEVELS}
    histogram = {str(count): queries for count, queries in sorted(Counter(relevant.tolist()).items())}
    return Findings({"queries": len(queries), "percent": shares, "by relevant documents": histogram})


def summary(found: Mapping[str, Findings]) -> dict[str, Any]:
    """Of each collection."""
    return {collection: findings.figures for collection, findings in found.items()}


PART = Part(
    "relevant-counts",
    "local-models",
    {collection: Piece(partial(counted, collection), letor_files(collection), 0.02) for collection in COLLECTIONS},
    summary,
)
