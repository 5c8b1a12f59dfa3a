"""Compute the tables of Zha et al. from per-query values: gains, lines, and which queries gain."""

from __future__ import annotations

from typing import Any

import numpy as np

from kinrank.arrays import Float64
from kinrank.measure import compare_paired
from reproduction.experiment import TaskResult, Values
from reproduction.rows import pool

PERCENTILES = (10, 25, 50, 75, 90)
SLICES = 5
ROUNDS = 10
"""K of the paper's procedure, by which Table 7 takes the root of α and divides β."""


def collection_figures(folds: list[TaskResult], paper: str) -> dict[str, Any]:
    """Return the tables of one collection, over the test queries of all folds.

    Parameters
    ----------
    folds
        The results of the folds.
    paper
        Name of the setting with the paper's procedure and best penalties, for Tables 5 to 7.
    """
    values = pool(folds)
    plain = values["plain"]
    settings = list(folds[0].figures["lines"])
    lines = {name: np.mean([fold.figures["lines"][name] for fold in folds], axis=0).round(3) for name in settings}
    figures: dict[str, Any] = {
        "test queries": len(plain),
        "without": round(float(plain.mean()), 4),
        "LambdaMART": round(float(values["LambdaMART"].mean()), 4),
        "trees": [fold.figures["n_trees"] for fold in folds],
        "each setting": {name: gain(values[name], plain) for name in settings},
        "lines": {name: dict(zip(_MOMENTS, each.tolist(), strict=True)) for name, each in lines.items()},
        "gain by percentile": _percentiles(values[paper] - plain),
    }
    for reading in ("paper", "ours"):
        chosen = values[f"{reading}, chosen"]
        figures[f"{reading}, penalties by validation"] = {
            "with": round(float(chosen.mean()), 4),
            **gain(chosen, plain),
            "chosen (alpha, beta)": [fold.figures["chosen"][reading][:2] for fold in folds],
            "folds where validation prefers without": sum(fold.figures["chosen"][reading][2] for fold in folds),
        }
    if len(folds) > 1:
        alpha, beta = trained_lines(values)
        moved = np.abs(alpha ** (1 / ROUNDS) - 1.0) + np.abs(beta / ROUNDS)
        third = np.argsort(np.argsort(moved, kind="stable"), kind="stable") * 3 // len(moved)
        figures["thirds, least moved first"] = [gain(values[paper][third == i], plain[third == i]) for i in range(3)]
        figures["fifths by gain"] = _by_gain(values[paper] - plain, alpha, beta)
    return figures


_MOMENTS = ("mean α", "variance of α", "mean β", "variance of β")


def gain(values: Float64, plain: Float64) -> dict[str, float]:
    """Return the relative gain in percent and Wilcoxon's p."""
    result = compare_paired(values, plain, "wilcoxon")
    return {"gain %": round(100 * result.mean_difference / float(plain.mean()), 2), "p": round(result.p, 4)}


def trained_lines(values: dict[str, Values]) -> tuple[Float64, Float64]:
    """Return α and β of each test query: the means of the lines that the other folds fitted to it in training.

    α is averaged as its logarithm, since steps multiply.
    """
    position = {name: i for i, name in enumerate(values["qid"].tolist())}
    query = np.array([position[name] for name in values["train qid"].tolist()])
    times = np.bincount(query, minlength=len(position))
    log_alpha = np.bincount(query, np.log(values["train alpha"]), len(position)) / times
    beta = np.bincount(query, values["train beta"], len(position)) / times
    return np.exp(log_alpha), beta


def _percentiles(difference: Float64) -> dict[str, float]:
    """Return Table 5: the change of DCG@5 at percentiles of the queries."""
    return {f"{percent}%": round(float(np.percentile(difference, percent)), 3) for percent in PERCENTILES}


def _by_gain(difference: Float64, alpha: Float64, beta: Float64) -> dict[str, Any]:
    """Return Table 6: fifths of the queries by change of DCG@5, largest loss first, and the mean line of each."""
    fifths = [
        {
            "change": round(float(difference[some].mean()), 3),
            "mean α": round(float(alpha[some].mean()), 3),
            "mean β": round(float(beta[some].mean()), 3),
        }
        for some in np.array_split(np.argsort(difference, kind="stable"), SLICES)
    ]
    first, _, middle, _, last = fifths
    return {
        "fifths": fifths,
        "middle over the outer two": {
            name: round(middle[name] - (first[name] + last[name]) / 2, 3) for name in ("mean α", "mean β")
        },
    }
