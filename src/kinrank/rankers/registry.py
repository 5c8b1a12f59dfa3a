"""The names of all rankers. A new ranker takes one file and one line here."""

from __future__ import annotations

from kinrank.registry import Registry

RANKERS = Registry(
    "ranker",
    {
        "kin": "kinrank.rankers.kin.ranker:KinRanker",
        "single": "kinrank.rankers.single:SingleRanker",
        "knn": "kinrank.rankers.knn:KnnRanker",
        "cells": "kinrank.rankers.cells.ranker:CellRanker",
        "query-class": "kinrank.papers.query_class:QueryClassRanker",
        "cluster": "kinrank.papers.cluster:ClusterRanker",
        "atvt": "kinrank.papers.atvt:ATVTRanker",
        "ensemble": "kinrank.papers.ensemble:EnsembleRanker",
    },
)

REGRESSORS = Registry(
    "regressor",
    {"lightgbm": "kinrank.papers.atvt:BoostedTrees", "kernel-ridge": "kinrank.papers.atvt:KernelRidge"},
)
"""The learners of aTVT, which its settings may name."""
