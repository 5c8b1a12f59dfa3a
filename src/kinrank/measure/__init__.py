"""Measures with named conventions, and tests of whether a difference is real.

A measure is a value: ``NDCG @ 10``, ``NDCG(gain="linear", ties="doc_id") @ 10``. See `Measure` for what every measure
can do and ``docs/measures.md`` for who means what by the same name.
"""

from __future__ import annotations

from kinrank.measure.base import Measure
from kinrank.measure.binary import AP, RR, P
from kinrank.measure.cascade import ERR
from kinrank.measure.discounted import DCG, NDCG, MeanNDCG
from kinrank.measure.evaluation import Evaluation, evaluate
from kinrank.measure.letor import LETOR_MAP, LETOR_NDCG, MEAN_NDCG_GENG, MEAN_NDCG_LETOR
from kinrank.measure.parse import MEASURES, parse_measure
from kinrank.measure.significance import PairedComparison, compare_paired, holm

__all__ = [
    "AP",
    "DCG",
    "ERR",
    "LETOR_MAP",
    "LETOR_NDCG",
    "MEAN_NDCG_GENG",
    "MEAN_NDCG_LETOR",
    "MEASURES",
    "NDCG",
    "RR",
    "Evaluation",
    "MeanNDCG",
    "Measure",
    "P",
    "PairedComparison",
    "compare_paired",
    "evaluate",
    "holm",
    "parse_measure",
]
