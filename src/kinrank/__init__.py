"""kinrank: every query is ranked by a model learnt from the judged queries most like it."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kinrank.data.letor import read_letor as read_letor
    from kinrank.data.queryset import QuerySet as QuerySet
    from kinrank.rankers import load as load
    from kinrank.rankers.cluster import ClusterRanker as ClusterRanker
    from kinrank.rankers.knn import KnnRanker as KnnRanker
    from kinrank.rankers.query_class import QueryClassRanker as QueryClassRanker
    from kinrank.rankers.single import SingleRanker as SingleRanker

__version__ = "0.1.0"

# Public name -> where it lives. Looked up on first use, so that `import kinrank` is quick and loads no extra.
_PUBLIC = {
    "ClusterRanker": "kinrank.rankers.cluster",
    "KnnRanker": "kinrank.rankers.knn",
    "QueryClassRanker": "kinrank.rankers.query_class",
    "QuerySet": "kinrank.data.queryset",
    "SingleRanker": "kinrank.rankers.single",
    "load": "kinrank.rankers",
    "read_letor": "kinrank.data.letor",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kinrank' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
