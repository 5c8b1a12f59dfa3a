"""Tables of a report, as rows of text for the template."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kinrank.study.report.contents import FeatureShares, NeighborAnalysis, Report
from kinrank.study.report.groups import GroupGain
from kinrank.study.report.querymap import shade_class
from kinrank.study.report.svg import format_number
from kinrank.study.report.words import between, conventions, examples, p_value

_EXTREMES = 10
_HEAT_ROWS = 20


def metric_table(report: Report) -> list[dict[str, Any]]:
    """Return the conventions of each measure, and a row per entrant."""
    comparison = report.comparison
    tables = []
    for measure in comparison.measures:
        rows = []
        for entrant in comparison.entrants:
            row: dict[str, Any] = {
                "name": entrant.name,
                "mean": f"{entrant.evaluation[measure]:.4f}",
                "subject": entrant.name == report.subject,
                **dict.fromkeys(("change", "interval", "p", "record"), ""),
            }
            if entrant is not comparison.baseline:
                difference = comparison.difference(entrant.name, measure)
                paired = difference.paired
                row |= {
                    "change": format_number(paired.mean_difference, "+.4f"),
                    "interval": between(*paired.interval),
                    "p": p_value(difference.p_holm).removeprefix("p = ").removeprefix("p "),
                    "record": " / ".join(f"{count:,}" for count in (paired.wins, paired.ties, paired.losses)),
                }
            rows.append(row)
        tables.append({"measure": str(measure), "conventions": conventions(measure), "rows": rows})
    return tables


def extremes(report: Report) -> dict[str, list[dict[str, Any]]]:
    """Return the queries with the largest gains and losses, their nearest judged queries and changed features."""
    gains = np.nan_to_num(report.gains)
    before, after = (each.per_query(report.measure) for each in (report.comparison.baseline, report.subject_entrant))
    order = np.argsort(-gains, kind="stable")

    def row(query: int) -> dict[str, Any]:
        return {
            "name": report.names[query],
            "before": f"{before[query]:.2f}",
            "after": f"{after[query]:.2f}",
            "change": format_number(float(gains[query]), "+.2f"),
            **_reasons(report, query),
        }

    return {
        "won": [row(query) for query in order[:_EXTREMES].tolist() if gains[query] > 0],
        "lost": [row(query) for query in order[::-1][:_EXTREMES].tolist() if gains[query] < 0],
    }


def _reasons(report: Report, query: int) -> dict[str, Any]:
    analysis = report.neighbors
    if analysis is None or query not in analysis.shown:
        return {"nearest": (), "more": "", "less": ""}
    position = int(np.searchsorted(analysis.shown, query))
    names = report.comparison.queries.feature_names
    if analysis.shares is None:
        return {"nearest": analysis.nearest[position], "more": "", "less": ""}
    change = analysis.shares.by_query[position] - analysis.shares.overall
    return {
        "nearest": analysis.nearest[position],
        "more": names[int(np.argmax(change))] if change.max() > 0 else "",
        "less": names[int(np.argmin(change))] if change.min() < 0 else "",
    }


def gain_table(rows: list[GroupGain]) -> list[dict[str, str]]:
    """Return the rows of a table of gains with intervals."""
    return [
        {
            "label": row.label,
            "queries": f"{row.gain.n:,}",
            "change": format_number(row.gain.mean_difference, "+.4f"),
            "interval": between(*row.gain.interval),
        }
        for row in rows
    ]


@dataclass(frozen=True)
class HeatTable:
    """Feature shares of each kind of query, next to those of the global model.

    Attributes
    ----------
    kinds : list of dict
        Letter, number of queries, examples, and the features that count more and less than globally.
    rows, rest : list of dict
        One row per feature, those that differ most between kinds first; `rest` differ less.
    """

    kinds: list[dict[str, Any]]
    rows: list[dict[str, Any]]
    rest: list[dict[str, Any]]


@dataclass(frozen=True)
class _Cell:
    share: str
    shade: str


def heat_table(report: Report, analysis: NeighborAnalysis, shares: FeatureShares) -> HeatTable:
    """Return the table of feature shares, shaded by the difference from the global model."""
    features = report.comparison.queries.feature_names
    by_kind = np.array([kind.shares for kind in shares.kinds])
    change = by_kind - shares.overall
    # Round to the nearest shade, so that small differences have no color.
    shades = np.rint(3 * change / (np.abs(change).max() or 1.0)).astype(int)
    order = np.argsort(-np.abs(change).max(axis=0), kind="stable").tolist()
    rows = [
        {
            "feature": features[feature],
            "overall": _percent(shares.overall[feature]),
            "cells": [
                _Cell(_percent(share), shade_class(int(shade)))
                for share, shade in zip(by_kind[:, feature], shades[:, feature], strict=True)
            ],
        }
        for feature in order
    ]
    kinds = [
        {
            "letter": kind.letter,
            "queries": f"{len(kind.members):,}",
            "examples": examples(report, analysis, kind),
            "more": [features[f] for f in np.argsort(-moved)[:2].tolist() if moved[f] > 0],
            "less": [features[f] for f in np.argsort(moved)[:2].tolist() if moved[f] < 0],
        }
        for kind, moved in zip(shares.kinds, change, strict=True)
    ]
    return HeatTable(kinds, rows[:_HEAT_ROWS], rows[_HEAT_ROWS:])


def _percent(share: float) -> str:
    return format_number(round(100 * float(share)), "+.0f")
