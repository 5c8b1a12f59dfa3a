"""What groups of test queries gain: by kind, by difficulty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.measure import PairedComparison, compare_paired
from kinrank.study.report.contents import NeighborAnalysis, Report, Weights

# Queries with nothing relevant are apart: every ranking of them is alike.
_LEVELS = {"hard": "hard (1–3)", "normal": "normal (4–20)", "easy": "easy (over 20)"}


@dataclass(frozen=True)
class GroupGain:
    """What a group is called, and what its queries gain over the baseline."""

    label: str
    gain: PairedComparison


def level_gains(report: Report) -> list[GroupGain]:
    """By how many of their candidates are relevant; a level with fewer than two queries is left out."""
    members = {label: np.flatnonzero(report.levels == level) for level, label in _LEVELS.items()}
    return _gains(report, members)


def kind_gains(report: Report, kinship: NeighborAnalysis, weights: Weights) -> list[GroupGain]:
    """By kind."""
    return _gains(report, {f"Kind {kind.letter}": kinship.shown[kind.members] for kind in weights.kinds})


def _gains(report: Report, members: Mapping[str, NDArray[np.int64]]) -> list[GroupGain]:
    after, before = (each.per_query(report.measure) for each in (report.own, report.comparison.baseline))
    return [
        GroupGain(label, compare_paired(after[some], before[some]))
        for label, some in members.items()
        if np.isfinite(after[some]).sum() > 1
    ]
