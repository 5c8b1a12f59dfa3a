"""RankSVM is at least 50 times faster than LinearSVC on explicit pairs, with the same objective.

The baseline is scikit-learn's LinearSVC (squared hinge, no intercept, automatic solver) on all pair differences of
MQ2007 fold 1, with C = 1 / (λ P), which makes the objectives equal. Building the pairs is timed separately. Growth is
measured on generated queries with 40 candidates and 46 features, from 10^4 to 10^6 rows.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from sklearn.svm import LinearSVC

from benchmarks.common import interleaved, letor_folds, log_progress, medians
from kinrank import QuerySet
from kinrank.learn.ranksvm import RankSVM

PENALTY = 0.01
ROWS = (10_000, 31_623, 100_000, 316_228, 1_000_000)


def run() -> dict[str, object]:
    """Return seconds, their ratio, objectives, and the exponent of growth."""
    train, _, _ = next(letor_folds("MQ2007"))
    differences = explicit_pairs(train)
    log_progress(f"{train}: {len(differences):,} pairs")
    # LinearSVC needs two classes, so half of the pairs are negated, which leaves the objective unchanged.
    signs = np.where(np.arange(len(differences)) % 2 == 0, 1, -1)
    signed = differences * signs[:, None]
    svc = LinearSVC(C=1 / (PENALTY * len(differences)), loss="squared_hinge", fit_intercept=False)
    ours = RankSVM(penalty=PENALTY)
    seconds = medians(
        interleaved(
            {
                "LinearSVC": lambda: svc.fit(signed, signs),
                "building the pairs": lambda: explicit_pairs(train),
                "RankSVM": lambda: ours.fit(train),
            },
            repeats=7,
        )
    )
    objectives = {"LinearSVC": objective(svc.coef_[0], differences), "RankSVM": objective(ours.coef_, differences)}
    growth = {
        rows: medians(interleaved({"fit": partial(ours.fit, queries)}, repeats=3))["fit"]
        for rows, queries in generated()
    }
    exponent = float(np.polyfit(np.log(list(growth)), np.log(list(growth.values())), 1)[0])
    return {
        "pairs": len(differences),
        "seconds": {name: round(value, 4) for name, value in seconds.items()},
        "times faster": round(seconds["LinearSVC"] / seconds["RankSVM"], 1),
        "objectives": objectives,
        "seconds by rows": {rows: round(value, 4) for rows, value in growth.items()},
        "exponent": round(exponent, 3),
    }


def explicit_pairs(queries: QuerySet) -> np.ndarray:
    """Return the differences x_i - x_j of all pairs with y_i > y_j."""
    parts = []
    for query in queries:
        better, worse = np.nonzero(query.grades[:, None] > query.grades[None, :])
        parts.append(query.X[better].astype(np.float64) - query.X[worse])
    return np.concatenate(parts)


def objective(w: np.ndarray, differences: np.ndarray) -> float:
    """Return λ/2 |w|² + the mean squared hinge."""
    return float(PENALTY / 2 * w @ w + np.mean(np.maximum(0.0, 1.0 - differences @ w) ** 2))


def generated():
    """Yield growing sets of generated queries."""
    rng = np.random.default_rng(0)
    for rows in ROWS:
        sizes = np.full(rows // 40, 40)
        X = rng.standard_normal((int(sizes.sum()), 46), dtype=np.float32)
        y = (X[:, :5].sum(axis=1) + rng.standard_normal(len(X)) > 2.5).astype(np.float32)
        log_progress(f"growth: {len(X):,} rows")
        yield len(X), QuerySet.from_arrays(X, y, group=sizes)
