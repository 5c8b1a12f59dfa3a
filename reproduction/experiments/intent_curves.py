"""Geng et al., Figures 8 and 9 on generated intents: quality and change ratio over k.

The data sets of `reproduction.experiments.intents`, seed 1. As in the paper, Figure 8 shows the smaller one. The larger
one has only KNN Online, which measures every k in one pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from kinrank.data.queryset import QuerySet
from kinrank.measure import MEAN_NDCG_GENG, evaluate
from kinrank.rankers._local.choose import choose_neighbors
from kinrank.rankers.knn import KnnRanker, OfflineModels
from reproduction.bounds import change_ratio
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.intents import COMMON, MEAN, MEASURES, MODES, SIZES, data_set
from reproduction.knn import uniform_knn

SMALL, LARGE = SIZES
SEED = 1
SHARES = (0.01, 0.03, 0.07, 0.13, 0.2, 0.27, 0.4, 0.53, 0.67, 0.8, 0.93, 1.0)
RATIO_SHARES = (0.07, 0.27, 0.53, 0.8, 1.0)
SHOWN = ("NDCG@5", "NDCG@10")
"""The measures of Figure 8."""
OFFLINE = MODES[1:]


def counts(size: str, shares: tuple[float, ...]) -> list[int]:
    """Return numbers of neighbors."""
    return [round(share * SIZES[size][0]) for share in shares]


def all_modes(k: int, _: DataFolder) -> TaskResult:
    """Measure the three modes with k neighbors, on the smaller data set."""
    train, test = data_set(SMALL, SEED)
    ranker = uniform_knn(k, mode="offline-1", n_jobs=1, **COMMON).fit(train)
    figures = {}
    for mode in MODES:
        scores = ranker.set_params(mode=mode.removeprefix("KNN ").lower()).predict(test)
        means = evaluate(test, scores, MEASURES.values())
        figures[mode] = {name: round(means[measure], 4) for name, measure in MEASURES.items()}
    return TaskResult(figures)


def online(size: str, _: DataFolder) -> TaskResult:
    """Measure mean NDCG of KNN Online for every k."""
    train, test = data_set(size, SEED)
    ranker = uniform_knn(**COMMON).fit(train)
    choice = choose_neighbors(ranker, test, counts(size, SHARES), measure=MEAN_NDCG_GENG)
    return TaskResult({str(k): round(quality, 4) for (k, _), quality in choice.quality.items()})


def ratios(size: str, _: DataFolder) -> TaskResult:
    """Measure the mean change ratio γ of both offline modes for some k."""
    train, test = data_set(size, SEED)
    ranker = uniform_knn(**COMMON).fit(train)
    figures: dict[str, dict[str, float]] = {mode: {} for mode in OFFLINE}
    for k in counts(size, RATIO_SHARES):
        for mode, ratio in zip(OFFLINE, _mean_ratios(ranker, test, k), strict=True):
            figures[mode][str(k)] = round(ratio, 4)
    return TaskResult(figures)


def _mean_ratios(ranker: KnnRanker, test: QuerySet, k: int) -> tuple[float, float]:
    """Return γ of Offline-1 and of Offline-2. It depends only on the training sets of the models, not on the models."""
    pairs = ranker.model_.training_set.pairs
    sets = OfflineModels([ranker.global_] * len(pairs), ranker.near(ranker.model_.index.points_, k), pairs)
    near = [members for members, _ in ranker.near(ranker.points(test), k)]
    most_alike = [sets.most_overlapping(members) for members in near]
    nearest = [int(members[0]) for members in near]
    first, second = (
        float(np.mean([change_ratio(own, sets.neighbors_of(i), pairs) for own, i in zip(near, chosen, strict=True)]))
        for chosen in (most_alike, nearest)
    )
    return first, second


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return KNN Online and change ratios by k for each size, and every mode and measure for the smaller one."""
    by_k = {k: results[f"{SMALL}, k = {k}"].figures for k in counts(SMALL, SHARES)}
    figures: dict[str, Any] = {
        SMALL: {
            "quality by k": {k: modes["KNN Online"][MEAN] for k, modes in by_k.items()},
            "all modes by k": {str(k): modes for k, modes in by_k.items()},
        },
        LARGE: {"quality by k": results[f"{LARGE}, online"].figures},
    }
    for size in SIZES:
        figures[size]["change ratio by k"] = results[f"{size}, change ratio"].figures
    return figures | {"shape": shape(figures)}


def shape(figures: dict[str, Any]) -> dict[str, float]:
    """Return the properties of the curves that the paper describes, as numbers; of the three modes, the worst."""
    by_k = {int(k): modes for k, modes in figures[SMALL]["all modes by k"].items()}
    m = max(by_k)
    properties: dict[str, float] = {}
    for measure in SHOWN:
        curves = [{k: modes[mode][measure] for k, modes in by_k.items()} for mode in MODES]
        best = [max(curve.values()) for curve in curves]
        flat = [min(value for k, value in curve.items() if 300 <= k <= 800) for curve in curves]
        properties |= {
            f"{measure}, rise from the smallest k": min(
                round(top - curve[min(curve)], 4) for top, curve in zip(best, curves, strict=True)
            ),
            f"{measure}, fall to k = m": min(round(top - curve[m], 4) for top, curve in zip(best, curves, strict=True)),
            f"{measure}, best k / m of Online": round(max(curves[0], key=curves[0].__getitem__) / m, 2),
            f"{measure}, loss of k = 300..800 against the best": max(
                round(top - low, 4) for top, low in zip(best, flat, strict=True)
            ),
        }
    small, large = (_by_share(figures, size) for size in (SMALL, LARGE))
    inner = [share for share in RATIO_SHARES if share < 1.0]
    below = [(ratios[OFFLINE[1]][share] - ratios[OFFLINE[0]][share]) for ratios in (small, large) for share in inner]
    larger = [small[mode][share] - large[mode][share] for mode in OFFLINE for share in inner]
    return properties | {
        "largest change ratio": max(
            ratios[mode][share] for ratios in (small, large) for mode in OFFLINE for share in inner
        ),
        "largest change ratio from 0.27 m": max(
            ratios[mode][share] for ratios in (small, large) for mode in OFFLINE for share in inner if share >= 0.27
        ),
        "change ratio at k = m": max(small[mode][1.0] for mode in OFFLINE),
        "Offline-2 minus Offline-1, least of all k": round(min(below), 4),
        "smaller minus larger set, least of all k": round(min(larger), 4),
    }


def _by_share(figures: Mapping[str, Any], size: str) -> dict[str, dict[float, float]]:
    """Return the change ratios of each mode by k / m."""
    ratios = figures[size]["change ratio by k"]
    at = dict(zip(RATIO_SHARES, map(str, counts(size, RATIO_SHARES)), strict=True))
    return {mode: {share: ratios[mode][k] for share, k in at.items()} for mode in OFFLINE}


EXPERIMENT = Experiment(
    "intent-curves",
    "geng",
    {f"{SMALL}, k = {k}": Task(partial(all_modes, k), minutes=0.1 + k / 6000) for k in counts(SMALL, SHARES)}
    | {
        f"{LARGE}, online": Task(partial(online, LARGE), minutes=0.4),
        f"{SMALL}, change ratio": Task(partial(ratios, SMALL), minutes=0.2),
        f"{LARGE}, change ratio": Task(partial(ratios, LARGE), minutes=0.6),
    },
    summary,
)
