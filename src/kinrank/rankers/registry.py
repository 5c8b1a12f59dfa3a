"""The names of all rankers. A new ranker takes one file and one line here."""

from __future__ import annotations

from kinrank.registry import Registry

RANKERS = Registry(
    "ranker",
    {
        "kin": "kinrank.rankers.kin.ranker:KinRanker",
        "single": "kinrank.rankers.single:SingleRanker",
        "atvt": "kinrank.rankers.atvt:ATVTRanker",
        "cluster": "kinrank.rankers.cluster.ranker:ClusterRanker",
        "ensemble": "kinrank.rankers.ensemble:EnsembleRanker",
        "knn": "kinrank.rankers.knn.ranker:KnnRanker",
        "cells": "kinrank.rankers.cells.ranker:CellRanker",
        "choices": "kinrank.rankers.choices.ranker:ChoiceRanker",
        "precedents": "kinrank.rankers.precedents.ranker:PrecedentRanker",
        "query-class": "kinrank.rankers.query_class:QueryClassRanker",
    },
)
