"""Hoi and Jin, Figures 1, 2 and 3: SER and SSER on the 25 rankers of OHSUMED, five folds, compared with RankSVM.

γ is chosen by MAP on the validation queries of each fold, the best single ranker by MAP on the training queries. Means
are over the five folds, tests over the 106 queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.measure import LETOR_MAP, Measure, P, compare_paired, evaluate, holm
from kinrank.rankers.ensemble import EnsembleRanker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import FOLDS, DataFolder, letor_files
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.rows import pool

COLLECTION = "OHSUMED-25"
GAMMAS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
NORMALIZATIONS: tuple[Literal["minmax", "standard", "none"], ...] = ("minmax", "standard", "none")
MEASURES: dict[str, Measure] = {"MAP": LETOR_MAP, **{f"P@{k}": P @ k for k in range(1, 11)}}
PAIRS = (
    ("SSER", "SER"),
    ("SSER", "RankSVM"),
    ("SSER", "best ranker"),
    ("SER", "RankSVM"),
    ("SSER (none)", "SER (none)"),
    ("SSER (none)", "RankSVM"),
    ("SER (none)", "RankSVM"),
)


def one_fold(fold: int, data: DataFolder) -> TaskResult:
    """Measure every method on every test query, and MAP by γ for each normalization of scores."""
    train, validation, test = data.letor_fold(COLLECTION, fold)
    best_column = int(np.argmax([_map(train, train.X[:, column]) for column in range(train.n_features)]))
    scores: dict[str, Any] = {
        "RankSVM": SingleRanker("ranksvm", scale="standard").fit(train).predict(test),
        "best ranker": test.X[:, best_column],
    }
    curves, chosen = {}, {}
    for how in NORMALIZATIONS:
        rankers = [EnsembleRanker(gamma, normalize=how, orient=False).fit(train) for gamma in GAMMAS]
        on_test = [ranker.predict(test) for ranker in rankers]
        tuned = [_map(validation, ranker.predict(validation)) for ranker in rankers]
        curves[f"{how} validation"], curves[f"{how} test"] = tuned, [_map(test, each) for each in on_test]
        best = int(np.argmax(tuned))
        chosen[how] = GAMMAS[best]
        suffix = "" if how == "minmax" else f" ({how})"
        scores |= {f"SER{suffix}": on_test[0], f"SSER{suffix}": on_test[best]}
        if how == "minmax":
            scores["SSER, γ = 0.5"] = on_test[GAMMAS.index(0.5)]
    values: dict[str, Float64] = {}
    for method, each in scores.items():
        per_query = evaluate(test, each, MEASURES.values()).per_query
        values |= {f"{method}: {name}": per_query[measure] for name, measure in MEASURES.items()}
    return TaskResult({"chosen": chosen, "curves": curves, "best ranker": f"f{best_column + 1}"}, values)


def _map(queries: QuerySet, scores: Any) -> float:
    return LETOR_MAP.mean(scores, queries.grades, queries.offsets)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the table, the curves over γ and the paired tests."""
    folds = list(results.values())
    values = pool(folds)
    curves = {
        name: np.mean([fold.figures["curves"][name] for fold in folds], axis=0).round(4).tolist()
        for name in folds[0].figures["curves"]
    }
    methods = list(dict.fromkeys(name.partition(":")[0] for name in values))
    return {
        "queries": len(values["SER: MAP"]),
        "table": {
            method: {
                name: round(float(np.mean([fold.values[f"{method}: {name}"].mean() for fold in folds])), 4)
                for name in MEASURES
            }
            for method in methods
        },
        "tests": _tests(values),
        "gamma": {how: [fold.figures["chosen"][how] for fold in folds] for how in NORMALIZATIONS},
        "gammas": GAMMAS,
        "MAP by gamma": curves,
        "best gamma": {name: GAMMAS[int(np.argmax(curve))] for name, curve in curves.items()},
        "best ranker of each fold": [fold.figures["best ranker"] for fold in folds],
    }


def _tests(values: Mapping[str, Float64]) -> dict[str, dict[str, float]]:
    """Return differences of AP over all queries, and p of paired t-tests, plain and corrected by Holm."""
    results = {f"{a} - {b}": compare_paired(values[f"{a}: MAP"], values[f"{b}: MAP"]) for a, b in PAIRS}
    adjusted = holm([result.p for result in results.values()])
    return {
        name: {
            "difference": round(result.mean_difference, 4),
            "p": round(result.p, 4),
            "p Holm": round(float(p), 4),
            "wins": result.wins,
            "losses": result.losses,
        }
        for (name, result), p in zip(results.items(), adjusted, strict=True)
    }


EXPERIMENT = Experiment(
    "ensemble",
    "sser",
    {f"fold {fold}": Task(partial(one_fold, fold), letor_files(COLLECTION), 0.13) for fold in FOLDS},
    summary,
)
