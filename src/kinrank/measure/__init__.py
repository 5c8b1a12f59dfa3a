"""Measures with named conventions, and significance tests.

A measure is a value: ``NDCG @ 10``, ``NDCG(gain="linear", ties="doc_id") @ 10``. See `Measure` for the interface and
``docs/measures.md`` for the conventions of other tools.
"""

from __future__ import annotations

from typing import Any

from kinrank.measure.base import Evaluation, Measure, evaluate
from kinrank.measure.measures import (
    AP,
    DCG,
    ERR,
    LETOR_MAP,
    LETOR_NDCG,
    MEAN_NDCG_GENG,
    MEAN_NDCG_LETOR,
    MEASURES,
    NDCG,
    RR,
    MeanNDCG,
    P,
    parse_measure,
)
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


def __getattr__(name: str) -> Any:
    if name in MEASURES:  # registered measures that are not imported above
        return MEASURES[name]
    raise AttributeError(f"module 'kinrank.measure' has no attribute {name!r}")
