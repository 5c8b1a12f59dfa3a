"""Tables of a report, as rows of text for the template."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from kinrank.arrays import Float64
from kinrank.study.report.contents import FeatureShares, NeighborAnalysis, Report
from kinrank.study.report.groups import GroupGain
from kinrank.study.report.names import clean
from kinrank.study.report.querymap import shade_class
from kinrank.study.report.shares import Kind
from kinrank.study.report.svg import format_number
from kinrank.study.report.words import between, conventions, examples, p_value

_EXTREMES = 10
_HEAT_ROWS = 20
_COUNTS = 0.005  # importance from which a feature has a direction


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
                **dict.fromkeys(("change", "interval", "p", "holm", "record"), ""),
            }
            if entrant is not comparison.baseline:
                difference = comparison.difference(entrant.name, measure)
                paired = difference.paired
                row |= {
                    "change": format_number(paired.mean_difference, "+.4f"),
                    "interval": between(*paired.interval),
                    "p": _number_of(paired.p),
                    "holm": _number_of(difference.p_holm),
                    "record": " / ".join(f"{count:,}" for count in (paired.wins, paired.ties, paired.losses)),
                }
            rows.append(row)
        tables.append({"measure": str(measure), "conventions": conventions(measure), "rows": rows})
    return tables


def _number_of(p: float) -> str:
    return p_value(p).removeprefix("p = ").removeprefix("p ")


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
            "lists": None if report.titles is None else before_and_after(report, query, report.titles),
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
    change = np.abs(analysis.shares.by_query[position]) - np.abs(analysis.shares.overall)
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


def heat_table(report: Report, analysis: NeighborAnalysis, shares: FeatureShares) -> dict[str, Any]:
    """Return the table of importances, shaded by the difference from the global model, with directions apart.

    Features that differ most between kinds come first; those that differ less are the `rest`.
    """
    features = report.comparison.queries.feature_names
    sizes = np.array([_mean_size(shares, kind) for kind in shares.kinds])
    ways = [
        [_direction(*pair) for pair in zip(k.shares, size, strict=True)]
        for k, size in zip(shares.kinds, sizes, strict=True)
    ]
    overall = np.abs(shares.overall)
    own_ways = [_direction(share, abs(share)) for share in shares.overall]
    change = sizes - overall
    # Round to the nearest shade, so that small differences have no color.
    shades = np.rint(3 * change / (np.abs(change).max() or 1.0)).astype(int)
    order = np.argsort(-np.abs(change).max(axis=0), kind="stable").tolist()
    rows = [
        {
            "feature": features[feature],
            "overall": _percent(overall[feature]),
            "way": own_ways[feature],
            "cells": [
                {
                    "share": _percent(sizes[kind, feature]),
                    "shade": shade_class(int(shades[kind, feature])),
                    "way": ways[kind][feature] if ways[kind][feature] != own_ways[feature] else "",
                }
                for kind in range(len(sizes))
            ],
        }
        for feature in order
    ]
    kinds = [
        {
            "letter": kind.letter,
            "name": kind.name,
            "queries": f"{len(kind.members):,}",
            "examples": examples(report, analysis, kind),
            "more": [features[f] for f in np.argsort(-moved)[:2].tolist() if moved[f] > 0],
            "less": [features[f] for f in np.argsort(moved)[:2].tolist() if moved[f] < 0],
        }
        for kind, moved in zip(shares.kinds, change, strict=True)
    ]
    return {"kinds": kinds, "rows": rows[:_HEAT_ROWS], "rest": rows[_HEAT_ROWS:]}


def _mean_size(shares: FeatureShares, kind: Kind) -> Float64:
    """Return the mean importance of each feature, which queries of opposite directions do not cancel."""
    if not len(kind.members):
        return np.abs(shares.overall)
    mean: Float64 = np.abs(shares.by_query[kind.members]).mean(axis=0)
    return mean


def _direction(share: float, size: float) -> str:
    """Return the direction of a feature: up, down, mixed if queries disagree, "" if it does not count.

    Examples
    --------
    >>> _direction(0.2, 0.2), _direction(-0.2, 0.25), _direction(0.01, 0.2), _direction(0.001, 0.001)
    ('up', 'down', 'mixed', '')
    """
    if size < _COUNTS:
        return ""
    return "mixed" if abs(share) < size / 2 else "up" if share > 0 else "down"


def _percent(size: float) -> str:
    return f"{100 * float(size):.0f}"


SHOWN = 10
"""Documents in each list."""


def before_and_after(report: Report, query: int, titles: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return the first documents of a query in the order of the baseline and of the subject."""
    queries = report.comparison.queries
    rows = np.arange(queries.offsets[query], queries.offsets[query + 1])
    before, after = (
        rows[np.argsort(-each.scores[rows], kind="stable")]
        for each in (report.comparison.baseline, report.subject_entrant)
    )
    places = {row: place for place, row in enumerate(before.tolist())}
    ids = queries.doc_id
    assert ids is not None  # `collect` refuses titles without document ids

    def entry(row: int, step: int | None) -> dict[str, Any]:
        document = str(ids[row])
        return {
            "title": clean(titles.get(document, document)),
            "grade": f"{queries.grades[row]:g}",
            "relevant": queries.grades[row] > 0,
            "move": "" if not step else f"{'▲' if step > 0 else '▼'} {abs(step)}",
            "way": "" if not step else "gain" if step > 0 else "loss",
        }

    return {
        "before": [entry(row, None) for row in before[:SHOWN].tolist()],
        "after": [entry(row, places[row] - place) for place, row in enumerate(after[:SHOWN].tolist())],
    }
