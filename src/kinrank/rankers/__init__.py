"""Rankers: one file each, one contract, found by name in `RANKERS`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kinrank.registry import Registry

if TYPE_CHECKING:
    from kinrank.rankers.base import Ranker as Ranker
    from kinrank.rankers.base import load as load

__all__ = ["RANKERS", "Ranker", "load"]

RANKERS = Registry(
    "ranker",
    {
        "kin": "kinrank.rankers.kin.ranker:KinRanker",
        "single": "kinrank.rankers.single:SingleRanker",
        "atvt": "kinrank.rankers.atvt:ATVTRanker",
        "cluster": "kinrank.rankers.cluster.ranker:ClusterRanker",
        "ensemble": "kinrank.rankers.ensemble:EnsembleRanker",
        "knn": "kinrank.rankers.knn.ranker:KnnRanker",
        "query-class": "kinrank.rankers.query_class:QueryClassRanker",
    },
)


def __getattr__(name: str) -> Any:
    # Names are listed without importing what they stand for, so that the command line's help is quick.
    if name not in ("Ranker", "load"):
        raise AttributeError(f"module 'kinrank.rankers' has no attribute {name!r}")
    return getattr(importlib.import_module("kinrank.rankers.base"), name)
