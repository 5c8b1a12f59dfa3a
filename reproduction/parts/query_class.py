"""Geng et al., Figure 7 on web search: one model per intent, by label or classified, beside KNN, on mwmbl.

849 web queries with intent labels, five folds, NDCG@10. Local weights are shrunk to the global model with strength 0.1
throughout (nothing is tuned). With true types the label of the test query is believed, which is an oracle: in
production it is not known. LightGBM, not linear, is far ahead on these features.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kinrank.learn.lambdamart import LambdaMART
from kinrank.rankers import Ranker
from kinrank.rankers.knn.ranker import KnnRanker
from kinrank.rankers.query_class import QueryClassRanker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import FOLDS, DataFolder, text_files
from reproduction.part import Findings, Part, Piece
from reproduction.rows import joined, per_query, table

SHRUNK: dict[str, Any] = {
    "prior": "global",
    "prior_strength": 0.1,
    "describe": "summaries+text",
    "missing": "zero",
}


def rankers() -> dict[str, Ranker]:
    """Unfitted."""
    return {
        "Single RankRLS": SingleRanker("rankrls", missing="zero"),
        "QC, true intents (oracle)": QueryClassRanker("intent", given=True, **SHRUNK),
        "QC, classified intents": QueryClassRanker("intent", **SHRUNK),
        "QC, 3 types found": QueryClassRanker(n_types=3, **SHRUNK),
        "KNN Online, k=100": KnnRanker(100, **SHRUNK),
        "KNN Online, k=400": KnnRanker(400, **SHRUNK),
        "LightGBM": SingleRanker(LambdaMART(n_threads=1)),
    }


def one_fold(held_out: int, data: DataFolder) -> Findings:
    """NDCG@10 of every test query under every method."""
    queries, fold = data.judged_text("mwmbl")
    train, test = queries[fold != held_out], queries[fold == held_out]
    fitted = {name: ranker.fit(train) for name, ranker in rankers().items()}
    return Findings(values={name: per_query(ranker, test) for name, ranker in fitted.items()})


def summary(found: Mapping[str, Findings]) -> dict[str, Any]:
    """Every method over the five test folds together, against Single."""
    return table(joined(found.values()))


PART = Part(
    "query-class",
    "geng",
    {f"fold {fold}": Piece(partial(one_fold, fold), text_files("mwmbl"), 0.04) for fold in FOLDS},
    summary,
)
