"""kinrank: rank each search by what similar searches taught."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kinrank.rankers.registry import RANKERS
from kinrank.version import __version__

if TYPE_CHECKING:
    from kinrank import datasets as datasets
    from kinrank import measure as measure
    from kinrank.data.delimited import read_csv as read_csv
    from kinrank.data.delimited import write_csv as write_csv
    from kinrank.data.letor import read_letor as read_letor
    from kinrank.data.letor import write_letor as write_letor
    from kinrank.data.parquet import iter_parquet as iter_parquet
    from kinrank.data.parquet import read_parquet as read_parquet
    from kinrank.data.parquet import write_parquet as write_parquet
    from kinrank.data.queryset import QuerySet as QuerySet
    from kinrank.data.split import fold_queries as fold_queries
    from kinrank.data.split import split_queries as split_queries
    from kinrank.data.trec import read_qrels as read_qrels
    from kinrank.data.trec import read_run as read_run
    from kinrank.data.trec import write_qrels as write_qrels
    from kinrank.data.trec import write_run as write_run
    from kinrank.memory.memory import Memory as Memory
    from kinrank.papers.atvt import ATVTRanker as ATVTRanker
    from kinrank.papers.cluster import ClusterRanker as ClusterRanker
    from kinrank.papers.ensemble import EnsembleRanker as EnsembleRanker
    from kinrank.papers.query_class import QueryClassRanker as QueryClassRanker
    from kinrank.rankers import load as load
    from kinrank.rankers._local.choose import choose_neighbors as choose_neighbors
    from kinrank.rankers.cells.ranker import CellRanker as CellRanker
    from kinrank.rankers.kin.ranker import KinRanker as KinRanker
    from kinrank.rankers.kin.settings import KinSettings as KinSettings
    from kinrank.rankers.knn import KnnRanker as KnnRanker
    from kinrank.rankers.single import SingleRanker as SingleRanker

# Public name -> its module, imported on first use, so that `import kinrank` is quick and loads no extra.
_PUBLIC = {cls: module for module, _, cls in (target.partition(":") for target in RANKERS.targets)} | {
    "KinSettings": "kinrank.rankers.kin.settings",
    "Memory": "kinrank.memory.memory",
    "QuerySet": "kinrank.data.queryset",
    "choose_neighbors": "kinrank.rankers._local.choose",
    "fold_queries": "kinrank.data.split",
    "iter_parquet": "kinrank.data.parquet",
    "load": "kinrank.rankers",
    "read_letor": "kinrank.data.letor",
    "read_csv": "kinrank.data.delimited",
    "read_parquet": "kinrank.data.parquet",
    "read_qrels": "kinrank.data.trec",
    "read_run": "kinrank.data.trec",
    "split_queries": "kinrank.data.split",
    "write_letor": "kinrank.data.letor",
    "write_csv": "kinrank.data.delimited",
    "write_parquet": "kinrank.data.parquet",
    "write_qrels": "kinrank.data.trec",
    "write_run": "kinrank.data.trec",
}
_MODULES = ("datasets", "measure", "scale")

__all__ = ["__version__", *_MODULES, *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"kinrank.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'kinrank' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
