"""What the deviations from the papers change: KNN on the first fold of MQ2008, SSER on the five folds of OHSUMED.

Every row changes one thing of what `as_published` returns. KNN Online has k = 100, and its gain is in NDCG@10. SSER has
γ = 0.5, and its gain is in average precision. The last rows are KNN Online as published on all folds of MQ2008, next to
the ranker of the reproduction, each over its own model for all queries.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.common import collections, log_progress
from kinrank import EnsembleRanker, KnnRanker, SingleRanker
from kinrank.arrays import Float64
from kinrank.kin import Describer
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import AP
from kinrank.papers.ensemble import normalize, smoothness, solve_hinge_qp
from kinrank.rankers import Ranker
from reproduction.experiments.knn_letor import REFERENCE
from reproduction.knn import uniform_knn
from reproduction.rows import per_query, row

COLLECTION, K, GAMMA = "MQ2008", 100, 0.5
COLUMN = REFERENCE[COLLECTION]
CHANGES: dict[str, dict[str, Any]] = {
    "as published": {},
    "squared hinge": {"learner": RankSVM()},
    "RankRLS": {"learner": "rankrls"},
    "λ |w|² in place of λ/2 |w|²": {"learner": RankSVM(0.02, loss="hinge")},
    "standardized query features": {"describe": Describer("mean", reference=COLUMN)},
    "first 50 candidates as given": {"describe": Describer("mean", standardize=False)},
    "standardized document features": {"scale": "standard"},
}


def run() -> dict[str, object]:
    """Return the rows of both tables."""
    return {
        "KNN Online": neighbors(),
        "KNN Online, five folds": verdict(),
        **{f"SSER, scores {how}": ensembles(how) for how in ("none", "minmax")},
    }


def neighbors() -> dict[str, object]:
    """Compare each change of KNN Online with it as published."""
    train, _, test = collections().letor_fold(COLLECTION, 1)
    quality = {"Single": per_query(SingleRanker(RankSVM(loss="hinge"), scale="none").fit(train), test)}
    for name, change in CHANGES.items():
        ranker = KnnRanker.as_published(reference=COLUMN, n_neighbors=K, n_jobs=1, **change).fit(train)
        quality[name] = per_query(ranker, test)
        log_progress(f"{name}: {quality[name].mean():.4f}")
    return {name: row(values, quality["as published"]) for name, values in quality.items()}


def verdict() -> dict[str, object]:
    """Compare KNN Online with one model for all queries: as published, and as the reproduction has it."""
    quality: dict[str, list[Float64]] = {}
    for fold in range(1, 6):
        train, _, test = collections().letor_fold(COLLECTION, fold)
        rankers: dict[str, Ranker] = {
            "RankSVM": SingleRanker(RankSVM(loss="hinge"), scale="none"),
            "as published": KnnRanker.as_published(reference=COLUMN, n_neighbors=K, n_jobs=1),
            "RankRLS": SingleRanker("rankrls"),
            "reproduction": uniform_knn(K, reference=COLUMN, n_jobs=1),
        }
        for name, ranker in rankers.items():
            quality.setdefault(name, []).append(per_query(ranker.fit(train), test))
            log_progress(f"fold {fold}, {name}: {quality[name][-1].mean():.4f}")
    values = {name: np.concatenate(parts) for name, parts in quality.items()}
    pairs = (("as published", "RankSVM"), ("reproduction", "RankRLS"))
    return {f"{name} over {baseline}": row(values[name], values[baseline]) for name, baseline in pairs}


def ensembles(how: Any) -> dict[str, object]:
    """Compare the equations of Hoi and Jin that do not agree: Eq. 8 with Eq. 10, Eq. 13 with its dual."""
    quality: dict[str, list[Float64]] = {}
    for fold in range(1, 6):
        train, _, test = collections().letor_fold("OHSUMED-25", fold)
        ranker = EnsembleRanker.as_published(GAMMA, normalize=how).fit(train)
        scores, _ = normalize(test.X.astype(np.float64), test.offsets, how)
        ranked: dict[str, list[Float64]] = {}
        for start, stop in zip(test.offsets[:-1], test.offsets[1:], strict=True):
            for name, w in weights(ranker, np.ascontiguousarray(scores[start:stop])).items():
                ranked.setdefault(name, []).append(scores[start:stop] @ w)
        for name, values in ranked.items():
            precision = AP.per_query(np.concatenate(values), test.grades, test.offsets)
            quality.setdefault(name, []).append(precision)
    rows = {name: row(np.concatenate(values), np.concatenate(quality["Eq. 10"])) for name, values in quality.items()}
    return {name: {"MAP": figures.pop("NDCG@10"), **figures} for name, figures in rows.items()}


def weights(ranker: EnsembleRanker, G: Float64) -> dict[str, Float64]:
    """Return the weights of a query by each equation."""
    n_variables = G.shape[1]
    squares = np.sum((G[:, None] - G[None]) ** 2, axis=2)
    np.fill_diagonal(squares, np.inf)
    near = squares <= np.sort(squares, axis=1)[:, [ranker.n_neighbors - 1]]
    S = (near | near.T).astype(np.float64)
    eq_10 = np.eye(n_variables) + GAMMA * smoothness(G, ranker.n_neighbors)
    eq_8 = np.eye(n_variables) + 2.0 * GAMMA * G.T @ (np.diag(S.sum(axis=1)) - S) @ G
    solved = solve_hinge_qp(eq_10, ranker.agreement_)
    return {
        "SER": ranker.coef_,
        "Eq. 10": solved.w,
        "Eq. 8": solve_hinge_qp(eq_8, ranker.agreement_).w,
        "Eq. 13, without η": np.linalg.solve(eq_10, ranker.agreement_.T @ solved.alpha),
    }
