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
from kinrank.rankers.knn.offline import OfflineModels, change_ratio
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.local.choose import choose_neighbors
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.intents import COMMON, MEAN, MEASURES, MODES, SIZES, data_set

SMALL, LARGE = SIZES
SEED = 1
SHARES = (0.01, 0.03, 0.07, 0.13, 0.2, 0.27, 0.4, 0.53, 0.67, 0.8, 0.93, 1.0)
RATIO_SHARES = (0.07, 0.27, 0.53, 0.8, 1.0)
OFFLINE = MODES[1:]


def counts(size: str, shares: tuple[float, ...]) -> list[int]:
    """Return numbers of neighbors."""
    return [round(share * SIZES[size][0]) for share in shares]


def all_modes(k: int, _: DataFolder) -> TaskResult:
    """Measure the three modes with k neighbors, on the smaller data set."""
    train, test = data_set(SMALL, SEED)
    ranker = KnnRanker.as_published(k, mode="offline-1", n_jobs=1, **COMMON).fit(train)
    figures = {}
    for mode in MODES:
        scores = ranker.set_params(mode=mode.removeprefix("KNN ").lower()).predict(test)
        means = evaluate(test, scores, MEASURES.values())
        figures[mode] = {name: round(means[measure], 4) for name, measure in MEASURES.items()}
    return TaskResult(figures)


def online(size: str, _: DataFolder) -> TaskResult:
    """Measure mean NDCG of KNN Online for every k."""
    train, test = data_set(size, SEED)
    ranker = KnnRanker.as_published(**COMMON).fit(train)
    choice = choose_neighbors(ranker, test, counts(size, SHARES), measure=MEAN_NDCG_GENG)
    return TaskResult({str(k): round(quality, 4) for (k, _), quality in choice.quality.items()})


def ratios(size: str, _: DataFolder) -> TaskResult:
    """Measure the mean change ratio γ of both offline modes for some k."""
    train, test = data_set(size, SEED)
    ranker = KnnRanker.as_published(**COMMON).fit(train)
    figures: dict[str, dict[str, float]] = {mode: {} for mode in OFFLINE}
    for k in counts(size, RATIO_SHARES):
        for mode, ratio in zip(OFFLINE, _mean_ratios(ranker, test, k), strict=True):
            figures[mode][str(k)] = round(ratio, 4)
    return TaskResult(figures)


def _mean_ratios(ranker: KnnRanker, test: QuerySet, k: int) -> tuple[float, float]:
    """Return γ of Offline-1 and of Offline-2. It depends only on the training sets of the models, not on the models."""
    pairs = ranker.training_set_.pairs
    sets = OfflineModels([ranker.global_] * len(pairs), ranker.near(ranker.index_.points_, k), pairs)
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
            "all modes by k": by_k,
        },
        LARGE: {"quality by k": results[f"{LARGE}, online"].figures},
    }
    for size in SIZES:
        figures[size]["change ratio by k"] = results[f"{size}, change ratio"].figures
    return figures | {"shape": shape(figures)}


def shape(figures: dict[str, Any]) -> dict[str, float]:
    """Return the properties of the curves that the paper describes, as numbers."""
    curve = {int(k): value for k, value in figures[SMALL]["quality by k"].items()}
    m = max(curve)
    flat = [value for k, value in curve.items() if 300 <= k <= 800]
    small, large = figures[SMALL]["change ratio by k"], figures[LARGE]["change ratio by k"]
    at = str(counts(SMALL, (0.27,))[0]), str(counts(LARGE, (0.27,))[0])
    return {
        "best k / m": round(max(curve, key=curve.__getitem__) / m, 2),
        "rise from the smallest k": round(max(curve.values()) - curve[min(curve)], 4),
        "fall to k = m": round(max(curve.values()) - curve[m], 4),
        "loss of k = 300..800 against the best": round(max(curve.values()) - min(flat), 4),
        "largest change ratio from 0.27 m": max(
            ratio for mode in OFFLINE for k, ratio in small[mode].items() if int(k) >= int(at[0])
        ),
        "change ratio at k = m": max(small[mode][str(m)] for mode in OFFLINE),
        "Offline-2 minus Offline-1, 0.27 m": round(small[OFFLINE[1]][at[0]] - small[OFFLINE[0]][at[0]], 4),
        "smaller minus larger set, 0.27 m": round(small[OFFLINE[0]][at[0]] - large[OFFLINE[0]][at[1]], 4),
    }


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
