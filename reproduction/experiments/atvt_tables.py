"""Compute the tables of Zha et al. from per-query values: gains, lines, and which queries gain."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinrank.arrays import Float64
from kinrank.measure import compare_paired
from reproduction.experiment import TaskResult
from reproduction.rows import pool

PERCENTILES = (10, 25, 50, 75, 90)
SLICES = 5


def collection_figures(folds: list[TaskResult], labels: list[str]) -> dict[str, Any]:
    """Return the tables of one collection, over the test queries of all folds."""
    values = pool(folds)
    plain, chosen = values["plain"], values["chosen"]
    third = np.concatenate([_thirds(fold.values) for fold in folds])
    raised = np.mean([fold.figures["refits that raised the objective"] for fold in folds])
    lines = {name: np.mean([fold.figures["lines"][name] for fold in folds], axis=0).round(3) for name in labels}
    return {
        "test queries": len(plain),
        "without": round(float(plain.mean()), 4),
        "with, penalties by validation": round(float(chosen.mean()), 4),
        **gain(chosen, plain),
        "LambdaMART": round(float(values["LambdaMART"].mean()), 4),
        "trees": [fold.figures["n_trees"] for fold in folds],
        "chosen (p, alpha, beta)": [fold.figures["chosen"] for fold in folds],
        "folds where validation prefers without": sum(fold.figures["plain is best on validation"] for fold in folds),
        "thirds, least moved first": [gain(chosen[third == i], plain[third == i]) for i in range(3)],
        "each setting": {name: gain(values[name], plain) for name in labels},
        "lines": {name: dict(zip(_MOMENTS, each.tolist(), strict=True)) for name, each in lines.items()},
        "gain by percentile": _percentiles(values["p=2 alpha=10 beta=1"] - plain),
        **_by_gain(values),
        "refits that raised the objective": round(float(raised), 3),
    }


_MOMENTS = ("mean α", "variance of α", "mean β", "variance of β")


def gain(values: Float64, plain: Float64) -> dict[str, float]:
    """Return the relative gain in percent and Wilcoxon's p."""
    result = compare_paired(values, plain, "wilcoxon")
    return {"gain %": round(100 * result.mean_difference / float(plain.mean()), 2), "p": round(result.p, 4)}


def _thirds(values: dict[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Return 0 for the least moved third of a fold's queries, 2 for the most; by fold, since penalties differ."""
    moved = np.abs(values["alpha, chosen"] - 1.0) + np.abs(values["beta, chosen"])
    ranks: NDArray[np.int64] = np.argsort(np.argsort(moved)) * 3 // len(moved)
    return ranks


def _percentiles(difference: Float64) -> dict[str, float]:
    """Return Table 5: the change of DCG@5 at percentiles of the queries."""
    return {f"{percent}%": round(float(np.percentile(difference, percent)), 3) for percent in PERCENTILES}


def _by_gain(values: dict[str, Float64]) -> dict[str, Any]:
    """Return Table 6: fifths of the queries by change of DCG@5, largest loss first, and the mean line of each."""
    difference = values["p=2 alpha=10 beta=1"] - values["plain"]
    fifths = [
        {
            "change": round(float(difference[some].mean()), 3),
            "mean α": round(float(values["alpha, paper"][some].mean()), 3),
            "mean β": round(float(values["beta, paper"][some].mean()), 3),
        }
        for some in np.array_split(np.argsort(difference, kind="stable"), SLICES)
    ]
    first, _, middle, _, last = fifths
    # Many queries have DCG 0 with and without aTVT: no relevant document at the top.
    still, above = difference == 0, values["plain"] > 0
    return {
        "fifths by gain": fifths,
        "middle fifth over the outer two": {
            name: round(middle[name] - (first[name] + last[name]) / 2, 3) for name in ("mean α", "mean β")
        },
        "mean α": {
            "DCG unchanged, 0": round(float(values["alpha, paper"][still & ~above].mean()), 3),
            "DCG unchanged, above 0": round(float(values["alpha, paper"][still & above].mean()), 3),
            "DCG changed": round(float(values["alpha, paper"][~still].mean()), 3),
        },
    }
