"""SER and SSER on the 25 rankers of OHSUMED, five folds: MAP and P@1 to P@10 beside RankSVM and the best ranker.

The paper (Hoi and Jin, AAAI 2008) says that SER is slightly below RankSVM, and that SSER is above both, most of all at
ranks 1 and 2, with γ near 0.5. Here γ is chosen by MAP on the validation queries of each fold; the best single ranker
is chosen by MAP on the training queries. Means are over the five folds, tests over the 106 queries.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import letor_folds, say
from kinrank import QuerySet, SingleRanker
from kinrank.measure import LETOR_MAP, Measure, P, compare_paired, evaluate, holm
from kinrank.rankers.ensemble import EnsembleRanker

GAMMAS = (0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 100.0)
NORMALIZATIONS = ("minmax", "standard", "none")
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


def run() -> dict[str, object]:
    """The table, the curves of γ for each way to normalise scores, and paired tests."""
    values: dict[str, dict[str, list[np.ndarray]]] = {}
    curves = {f"{how} {part}": np.zeros(len(GAMMAS)) for how in NORMALIZATIONS for part in ("validation", "test")}
    chosen: dict[str, list[float]] = {how: [] for how in NORMALIZATIONS}
    names: list[int] = []
    for train, validation, test in letor_folds("OHSUMED-25"):
        scores = {"RankSVM": SingleRanker("ranksvm", scale="standard").fit(train).predict(test)}
        names.append(_best_column(train))
        scores["best ranker"] = test.X[:, names[-1]]
        for how in NORMALIZATIONS:
            rankers = [EnsembleRanker(gamma, normalize=how, orient=False).fit(train) for gamma in GAMMAS]
            on_test = [ranker.predict(test) for ranker in rankers]
            tuned = [_map(validation, ranker.predict(validation)) for ranker in rankers]
            curves[f"{how} validation"] += np.array(tuned) / 5
            curves[f"{how} test"] += np.array([_map(test, each) for each in on_test]) / 5
            best = int(np.argmax(tuned))
            chosen[how].append(GAMMAS[best])
            suffix = "" if how == "minmax" else f" ({how})"
            scores |= {f"SER{suffix}": on_test[0], f"SSER{suffix}": on_test[best]}
            if how == "minmax":
                scores["SSER, γ = 0.5"] = on_test[GAMMAS.index(0.5)]
        for method, each in scores.items():
            evaluation = evaluate(test, each, MEASURES.values())
            for name, measure in MEASURES.items():
                values.setdefault(method, {}).setdefault(name, []).append(evaluation.per_query[measure])
    table = {
        method: {name: round(float(np.mean([fold.mean() for fold in folds])), 4) for name, folds in row.items()}
        for method, row in values.items()
    }
    for method, row in table.items():
        say(f"{method:16} " + " ".join(f"{name} {value:.4f}" for name, value in row.items()))
    return {
        "queries": sum(len(fold) for fold in values["SER"]["MAP"]),
        "table": table,
        "tests": _tests(values),
        "gamma": {how: chosen[how] for how in NORMALIZATIONS},
        "gammas": GAMMAS,
        "MAP by gamma": {name: curve.round(4).tolist() for name, curve in curves.items()},
        "best ranker of each fold": [f"f{column + 1}" for column in names],
    }


def _map(queries: QuerySet, scores: np.ndarray) -> float:
    return LETOR_MAP.mean(scores, queries.grades, queries.offsets)


def _best_column(queries: QuerySet) -> int:
    return int(np.argmax([_map(queries, queries.X[:, column]) for column in range(queries.n_features)]))


def _tests(values: dict[str, dict[str, list[np.ndarray]]]) -> dict[str, dict[str, float]]:
    """Differences of AP over all queries, and p by the paired t-test, plain and by Holm for the family."""
    results = {
        f"{a} - {b}": compare_paired(np.concatenate(values[a]["MAP"]), np.concatenate(values[b]["MAP"]))
        for a, b in PAIRS
    }
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
