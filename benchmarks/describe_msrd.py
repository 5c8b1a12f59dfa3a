"""The gain of each description block on MSRD: KNN Online compared with Single, on validation and test queries.

All rows use RankRLS, k = 400, λ = 0.01 and the reference ``bm25_all``; nothing is chosen here. The default block
weights were chosen on the validation queries, so that column is optimistic.
"""

from __future__ import annotations

from benchmarks.common import log_progress, msrd
from kinrank import SingleRanker
from kinrank.kin import Describer
from reproduction.experiments.knn_msrd import REFERENCE
from reproduction.knn import uniform_knn
from reproduction.rows import per_query, row

ALL = "summaries+text+column:words"
DESCRIPTIONS: dict[str, dict[str, object]] = {
    **{
        blocks: {"blocks": blocks}
        for blocks in (
            "mean",
            "std",
            "max",
            "predictors",
            "text",
            "mean+std+max",
            "summaries",
            "summaries+column:words",
            "summaries+text",
            ALL,
        )
    },
    "all, 20 components": {"blocks": ALL, "n_components": 20},
    "all, 46 components": {"blocks": ALL, "n_components": 46},
    "all, text in 32 components": {"blocks": ALL, "n_components": {"text": 32}},
}


def run() -> dict[str, object]:
    """Return the gain over Single of each description."""
    parts = msrd()
    single = SingleRanker("rankrls").fit(parts["train"])
    baseline = {part: per_query(single, parts[part]) for part in ("vali", "test")}
    rows: dict[str, object] = {part: round(float(values.mean()), 4) for part, values in baseline.items()}
    for name, settings in DESCRIPTIONS.items():
        ranker = uniform_knn(400, describe=Describer(reference=REFERENCE, **settings)).fit(parts["train"])
        figures = {
            part: row(per_query(ranker, parts[part]), baseline[part], parts[part].query_columns["movie"])
            for part in baseline
        }
        rows[name] = {
            "dimensions": int(ranker.model_.index.points_.shape[1]),
            "validation": figures["vali"]["gain"],
            "test": figures["test"]["gain"],
            "p on test": figures["test"]["p"],
        }
        log_progress(f"{name}: {rows[name]}")
    return {"Single": {part: rows.pop(part) for part in baseline}, **rows}
