"""Gains of groups of test queries: by kind, by difficulty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinrank.measure import PairedComparison, compare_paired
from kinrank.study.report.contents import Report
from kinrank.study.report.shares import LETTERS, kind_label

# Queries without a relevant candidate are left out: any order scores the same.
_LEVELS = {"hard": "hard (1–3)", "normal": "normal (4–20)", "easy": "easy (over 20)"}


@dataclass(frozen=True)
class GroupGain:
    """Name of a group, and the gain of its queries over the baseline."""

    label: str
    gain: PairedComparison


def level_gains(report: Report) -> list[GroupGain]:
    """Return the gain by number of relevant candidates; levels with fewer than two queries are left out."""
    members = {label: np.flatnonzero(report.levels == level) for level, label in _LEVELS.items()}
    return _gains(report, members)


def kind_gains(report: Report) -> list[GroupGain]:
    """Return the gain by kind of query, given by a column or found; empty if there are no kinds."""
    if report.groups:
        named = zip(LETTERS, report.groups.items(), strict=False)
        return _gains(report, {kind_label(letter, value): members for letter, (value, members) in named})
    analysis = report.neighbors
    if analysis is None or analysis.shares is None:
        return []
    return _gains(report, {kind.label: analysis.shown[kind.members] for kind in analysis.shares.kinds})


def _gains(report: Report, members: Mapping[str, NDArray[np.int64]]) -> list[GroupGain]:
    after, before = (each.per_query(report.measure) for each in (report.subject_entrant, report.comparison.baseline))
    return [
        GroupGain(label, compare_paired(after[some], before[some]))
        for label, some in members.items()
        if np.isfinite(after[some]).sum() > 1
    ]
