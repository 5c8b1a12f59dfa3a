"""Hoi and Jin, Figures 1, 2 and 3: SER and SSER on the 25 rankers of OHSUMED, five folds, compared with RankSVM.

The paper's protocol: three folds train, one validates, one tests; C = 1, δ = 1, θ = 0.5, and γ is chosen by MAP on the
validation queries. It does not say how scores are normalized, nor RankSVM's penalty. LETOR's own baselines use
query-level normalization, so the main rows scale every ranker's scores to 0..1 within a query, for all methods alike,
and λ is chosen on the validation queries as γ is. All other normalizations and penalties are measured, too, and so is
the choice of the normalization itself on the validation queries.

The best single ranker is chosen by MAP on the training queries. Means are over the five folds, tests over the 106
queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from kinrank.arrays import Float64
from kinrank.data.queryset import QuerySet
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import LETOR_MAP, Measure, P, compare_paired, evaluate, holm
from kinrank.papers.ensemble import DISTANCES, EnsembleRanker, Normalize, normalize
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import FOLDS, DataFolder, letor_files
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.rows import pool

COLLECTION = "OHSUMED-25"
GAMMAS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
NORMALIZATIONS: tuple[Normalize, ...] = ("minmax", "standard", "none")
MAIN: Normalize = "minmax"
GLOBAL = "all queries"
"""Raw scores standardized over all queries together, which keeps differences between queries."""
PENALTIES = (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5)
MEASURES: dict[str, Measure] = {"MAP": LETOR_MAP, **{f"P@{k}": P @ k for k in range(1, 11)}}
PAIRS = (("SER", "RankSVM"), ("SSER", "RankSVM"), ("SSER", "SER"))
FLAT = (0.2, 10.0)
"""The range of γ over which the spread of MAP is reported."""
BOOTSTRAP = 2000


class Tried(NamedTuple):
    """A setting, its scores of the test queries, and its MAP on the validation queries."""

    setting: float | str
    scores: Float64
    on_validation: float


def one_fold(fold: int, data: DataFolder) -> TaskResult:
    """Measure every method on every test query, for each normalization of scores."""
    train, validation, test = data.letor_fold(COLLECTION, fold)
    best_column = int(np.argmax([_map(train, train.X[:, column]) for column in range(train.n_features)]))
    svms: dict[str, list[Tried]] = {how: [] for how in (*NORMALIZATIONS, GLOBAL)}
    for how, penalty in product(svms, PENALTIES):
        svms[how].append(try_rank_svm(how, penalty, train, validation, test))
    ensembles: dict[str, list[Tried]] = {
        how: [
            try_ranker(gamma, EnsembleRanker(gamma, normalize=how, orient=False).fit(train), validation, test)
            for gamma in GAMMAS
        ]
        for how in NORMALIZATIONS
    }
    scores: dict[str, Float64] = {"best ranker": test.X[:, best_column].astype(np.float64)}
    chosen: dict[str, Any] = {}
    for how in svms:
        best = choose(svms[how])
        scores[f"RankSVM ({how})"], chosen[f"λ ({how})"] = best.scores, best.setting
    for how, tried in ensembles.items():
        best = choose(tried)
        scores |= {f"SER ({how})": tried[0].scores, f"SSER ({how})": best.scores}
        chosen[f"γ ({how})"] = best.setting
    # The normalization itself by validation, each method for itself.
    free = {
        "RankSVM": [choose(svms[how])._replace(setting=how) for how in NORMALIZATIONS],
        "SER": [tried[0]._replace(setting=how) for how, tried in ensembles.items()],
        "SSER": [choose(tried)._replace(setting=how) for how, tried in ensembles.items()],
    }
    for method, tried in free.items():
        best = choose(tried)
        scores[f"{method} (chosen)"], chosen[f"normalization of {method}"] = best.scores, best.setting
    for distance in DISTANCES:
        ranker = EnsembleRanker(normalize=MAIN, orient=False, similarity=distance).fit(train)
        scores[f"SER, {distance} (Eq. 7)"] = ranker.predict(test)
    values: dict[str, Float64] = {}
    for method, each in scores.items():
        per_query = evaluate(test, each, MEASURES.values()).per_query
        values |= {f"{method}: {name}": per_query[measure] for name, measure in MEASURES.items()}
    grids = {f"RankSVM {how}": tried for how, tried in svms.items()}
    grids |= {f"SSER {how}": tried for how, tried in ensembles.items()}
    for name, tried in grids.items():
        values |= {f"{name} {each.setting:g}": average_precision(test, each.scores) for each in tried}
    on_validation = {name: [each.on_validation for each in tried] for name, tried in grids.items()}
    return TaskResult(
        {"chosen": chosen, "validation": on_validation, "best ranker": f"f{best_column + 1}"},
        values,
    )


def normalized(how: Normalize, queries: QuerySet) -> QuerySet:
    """Normalize the scores of each ranker within each query."""
    scores, _ = normalize(queries.X.astype(np.float64), queries.offsets, how)
    return queries.replace(X=scores.astype(np.float32))


def try_rank_svm(how: str, penalty: float, *split: QuerySet) -> Tried:
    """Fit RankSVM on the training queries of a split and score its test queries."""
    if how == GLOBAL:
        train, validation, test = split
        ranker = SingleRanker(RankSVM(penalty), scale="standard")
    else:
        train, validation, test = (normalized(_normalization(how), queries) for queries in split)
        ranker = SingleRanker(RankSVM(penalty), scale="none")
    return try_ranker(penalty, ranker.fit(train), validation, test)


def _normalization(how: str) -> Normalize:
    return next(each for each in NORMALIZATIONS if each == how)


def try_ranker(setting: float, ranker: Any, validation: QuerySet, test: QuerySet) -> Tried:
    """Score the test queries with a fitted ranker, and measure it on the validation queries."""
    return Tried(setting, ranker.predict(test), _map(validation, ranker.predict(validation)))


def choose(tried: list[Tried]) -> Tried:
    """Return the setting with the highest MAP on the validation queries."""
    return max(tried, key=lambda each: each.on_validation)


def average_precision(queries: QuerySet, scores: Float64) -> Float64:
    """Return the average precision of each query."""
    return LETOR_MAP.per_query(scores, queries.grades, queries.offsets)


def _map(queries: QuerySet, scores: Any) -> float:
    return LETOR_MAP.mean(scores, queries.grades, queries.offsets)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the table of methods, RankSVM by penalty, the curves over γ and the paired tests."""
    folds = list(results.values())
    values = pool(folds)

    def mean(name: str) -> float:
        """Return the mean of the fold means, as LETOR reports it."""
        return round(float(np.mean([fold.values[name].mean() for fold in folds])), 4)

    methods = list(dict.fromkeys(name.partition(":")[0] for name in values if ": " in name))
    curves = {how: [mean(f"SSER {how} {gamma:g}") for gamma in GAMMAS] for how in NORMALIZATIONS}
    validated = {
        how: np.mean([fold.figures["validation"][f"SSER {how}"] for fold in folds], axis=0).round(4).tolist()
        for how in NORMALIZATIONS
    }
    return {
        "queries": len(values[f"SER ({MAIN}): MAP"]),
        "table": {method: {name: mean(f"{method}: {name}") for name in MEASURES} for method in methods},
        "tests": _tests(values),
        "RankSVM by penalty": {
            how: {f"{penalty:g}": mean(f"RankSVM {how} {penalty:g}") for penalty in PENALTIES}
            for how in (*NORMALIZATIONS, GLOBAL)
        },
        "chosen": {name: [fold.figures["chosen"][name] for fold in folds] for name in folds[0].figures["chosen"]},
        "gammas": GAMMAS,
        "MAP by gamma": {f"{how} test": curve for how, curve in curves.items()}
        | {f"{how} validation": curve for how, curve in validated.items()},
        "spread over gamma": {how: _spread(values, how, curve) for how, curve in curves.items()},
        "best ranker of each fold": [fold.figures["best ranker"] for fold in folds],
    }


def _tests(values: Mapping[str, Float64]) -> dict[str, dict[str, float]]:
    """Return differences of AP over all queries, and p of paired t-tests, plain and corrected by Holm."""
    results = {}
    for how, (a, b) in product((*NORMALIZATIONS, "chosen"), PAIRS):
        results[f"{a} - {b} ({how})"] = compare_paired(values[f"{a} ({how}): MAP"], values[f"{b} ({how}): MAP"])
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


def _spread(values: Mapping[str, Float64], how: str, curve: list[float]) -> dict[str, float]:
    """Return how far MAP varies over a wide range of γ, and how certain the best γ is."""
    low, high = FLAT
    inside = [at for at, gamma in enumerate(GAMMAS) if low <= gamma <= high]
    per_query = np.array([values[f"SSER {how} {gamma:g}"] for gamma in GAMMAS])
    half = GAMMAS.index(0.5)
    rng = np.random.default_rng(0)
    draws = rng.integers(0, per_query.shape[1], (BOOTSTRAP, per_query.shape[1]))
    best = np.array([int(np.argmax(per_query[:, draw].mean(axis=1))) for draw in draws])
    close = np.isin(best, [at for at, gamma in enumerate(GAMMAS) if 0.2 <= gamma <= 1.0])
    return {
        "best gamma": GAMMAS[int(np.argmax(curve))],
        f"lowest MAP for γ = {low:g} to {high:g}": min(curve[at] for at in inside),
        f"highest MAP for γ = {low:g} to {high:g}": max(curve[at] for at in inside),
        "γ = 0.5 below the best": round(max(curve) - curve[half], 4),
        "γ = 0.5 minus γ = 0": round(curve[half] - curve[0], 4),
        "p, γ = 0.5 against 0": round(compare_paired(per_query[half], per_query[0]).p, 4),
        "p, γ = 0.5 against 10": round(compare_paired(per_query[half], per_query[GAMMAS.index(10.0)]).p, 4),
        "share of bootstrap samples with the best γ in 0.2 to 1": round(float(close.mean()), 3),
    }


EXPERIMENT = Experiment(
    "ensemble",
    "sser",
    {f"fold {fold}": Task(partial(one_fold, fold), letor_files(COLLECTION), 0.3) for fold in FOLDS},
    summary,
)
