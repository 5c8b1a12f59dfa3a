"""Geng et al., Figure 7 on web search: one model per true or predicted intent, compared with KNN, on mwmbl.

849 web queries with intent labels, five folds, NDCG@10. All local weights are shrunk to the global model with strength
0.1; nothing is tuned. True intents are an oracle, since the intent of a query is not known in production. LightGBM is
far ahead, because these features are not linear.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kinrank.learn.lambdamart import LambdaMART
from kinrank.papers.query_class import QueryClassRanker
from kinrank.rankers import Ranker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import FOLDS, DataFolder, text_files
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.knn import uniform_knn
from reproduction.rows import per_query, pool, table

SHRUNK: dict[str, Any] = {
    "prior": "global",
    "prior_strength": 0.1,
    "describe": "summaries+text",
    "missing": "zero",
}


def rankers() -> dict[str, Ranker]:
    """Return the unfitted rankers."""
    return {
        "Single RankRLS": SingleRanker("rankrls", missing="zero"),
        "QC, true intents (oracle)": QueryClassRanker("intent", given=True, **SHRUNK),
        "QC, classified intents": QueryClassRanker("intent", **SHRUNK),
        "QC, 3 types found": QueryClassRanker(n_types=3, **SHRUNK),
        "KNN Online, k=100": uniform_knn(100, **SHRUNK),
        "KNN Online, k=400": uniform_knn(400, **SHRUNK),
        "LightGBM": SingleRanker(LambdaMART(n_threads=1)),
    }


def one_fold(held_out: int, data: DataFolder) -> TaskResult:
    """Measure NDCG@10 of every method on every test query."""
    queries, fold = data.judged_text("mwmbl")
    train, test = queries[fold != held_out], queries[fold == held_out]
    fitted = {name: ranker.fit(train) for name, ranker in rankers().items()}
    return TaskResult(values={name: per_query(ranker, test) for name, ranker in fitted.items()})


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Compare every method with Single, over the five test folds."""
    return table(pool(results.values()))


EXPERIMENT = Experiment(
    "query-class",
    "geng",
    {f"fold {fold}": Task(partial(one_fold, fold), text_files("mwmbl"), 0.04) for fold in FOLDS},
    summary,
)
