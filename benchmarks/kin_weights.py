"""How closely KinRanker's linear weights follow its ranking on MSRD, compared with other weights and LightGBM.

NDCG@10 on MSRD's fixed test split (20 features, 24 candidates a query), all fitted on the training and validation
queries: KinRanker, the weighted sums by its weights (also nonnegative), those by KnnRanker's and by the global model's
weights, and LightGBM. With paired t-tests, Kendall's tau between KinRanker's ranking and that by its weights, and the
time of both.
"""

from __future__ import annotations

import numpy as np

from benchmarks.common import interleaved, log_progress, medians, msrd
from kinrank import KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG, compare_paired

MEASURE = NDCG(ties="average") @ 10
SETTINGS = {"reference": "bm25_all", "group_column": "movie"}


def run() -> dict[str, object]:
    """Return the quality of each ranking, comparisons with KinRanker and LightGBM, fidelity and cost."""
    parts = msrd()
    train, test = QuerySet.concat([parts["train"], parts["vali"]]), parts["test"]
    log_progress("fit KinRanker")
    kin = KinRanker(**SETTINGS).fit(train)
    log_progress("fit the others")
    knn = KnnRanker(400, reference="bm25_all", prior="global").fit(train)
    lightgbm = LambdaMART(n_trees=300, n_leaves=15, learning_rate=0.05, min_rows_in_leaf=50).fit(train)
    found = kin.weights_with_fidelity(test)
    signed = kin.copy().set_params(nonnegative=True)
    scores = {
        "KinRanker": kin.predict(test),
        "KinRanker's weights": _by_weights(test, found.weights),
        "KinRanker's weights, nonnegative": _by_weights(test, signed.weights(test)),
        "KnnRanker's weights": _by_weights(test, knn.weights(test)),
        "global weights": _by_weights(test, SingleRanker().fit(train).weights(test)),
        "LightGBM": lightgbm.booster_.predict(test.X),
    }
    quality = {name: MEASURE.per_query(each, test.grades, test.offsets) for name, each in scores.items()}
    return {
        "NDCG@10": {name: round(float(each.mean()), 4) for name, each in quality.items()},
        "its weights compared": {
            name: str(compare_paired(quality["KinRanker's weights"], each))
            for name, each in quality.items()
            if name != "KinRanker's weights"
        },
        "fidelity of its weights": dict(
            zip(
                ("1%", "5%", "median", "95%"),
                np.quantile(found.fidelity, [0.01, 0.05, 0.5, 0.95]).round(3).tolist(),
                strict=True,
            )
        ),
        "weights of a query, times ranking it": _cost(kin, test),
    }


def _by_weights(queries: QuerySet, weights: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", queries.X, weights[queries.query_of_row])


def _cost(kin: KinRanker, test: QuerySet, repeats: int = 200) -> float:
    queries = iter([query for query in test[: repeats + 5] for _ in range(2)])
    seconds = medians(
        interleaved(
            {"rank": lambda: kin.predict(next(queries)), "weights": lambda: kin.weights(next(queries))},
            repeats,
            warm=5,
        )
    )
    return round(seconds["weights"] / seconds["rank"], 2)
