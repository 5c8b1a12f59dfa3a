"""Geng et al., Figures 7 and 8 on movie search, the one real collection available on which KNN gains.

MSRD, its fixed split by movie, NDCG@10. Measured with the paper's description and k, and with the description, k,
kernel and prior that ``python -m benchmarks knn_msrd`` chooses on the validation queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kinrank.kin import Describer
from kinrank.measure import NDCG
from kinrank.papers.query_class import QueryClassRanker
from kinrank.rankers import Ranker
from kinrank.rankers._local.choose import choose_neighbors
from kinrank.rankers.knn import KnnRanker, Mode
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import MSRD_FILES, DataFolder
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.knn import uniform_knn
from reproduction.rows import per_query, table

REFERENCE = "bm25_all"
MOVIE = "movie"
"""The group of a query: tests are by movie, because queries about the same movie are not independent."""
DESCRIPTION = "summaries+text"
CHOSEN: dict[str, Any] = {
    "n_components": 46,
    "n_neighbors": 400,
    "neighbor_weights": "gaussian",
    "prior": "global",
    "prior_strength": 0.1,
}
PAPER: dict[str, Any] = {"n_neighbors": 400}
NEIGHBORS = (25, 50, 100, 200, 400, 800, 1600, 3200, 6400, 11341)
MEASURE = NDCG @ 10


def knn(settings: Mapping[str, Any], blocks: str = DESCRIPTION, mode: Mode = "online") -> KnnRanker:
    """Return an unfitted KNN ranker with the given settings."""
    own = {name: value for name, value in settings.items() if name != "n_components"}
    describer = Describer(blocks, reference=REFERENCE, n_components=settings.get("n_components"))
    return uniform_knn(mode=mode, describe=describer, **own)


def baselines(data: DataFolder) -> TaskResult:
    """Measure NDCG@10 of one model for all queries, and of one model per query type."""
    train, _, test = data.msrd()
    rankers: dict[str, Ranker] = {
        "Single RankRLS": SingleRanker("rankrls"),
        "QC, 3 types found": QueryClassRanker(n_types=3, describe=DESCRIPTION, reference=REFERENCE),
    }
    values = {name: per_query(ranker.fit(train), test) for name, ranker in rankers.items()}
    return TaskResult(values={MOVIE: test.query_columns[MOVIE], **values})


def three_modes(settings: Mapping[str, Any], blocks: str, data: DataFolder) -> TaskResult:
    """Measure NDCG@10 of the three modes on every test query."""
    train, _, test = data.msrd()
    ranker = knn(settings, blocks, "offline-1").fit(train)
    modes: tuple[Mode, ...] = ("online", "offline-1", "offline-2")
    return TaskResult(values={mode: per_query(ranker.set_params(mode=mode), test) for mode in modes})


def curve(blocks: str, data: DataFolder) -> TaskResult:
    """Measure NDCG@10 of KNN Online on the test queries for every k, without prior or kernel, as in the paper."""
    train, _, test = data.msrd()
    components = CHOSEN["n_components"] if blocks == DESCRIPTION else None
    ranker = knn({"n_components": components}, blocks).fit(train)
    choice = choose_neighbors(ranker, test, NEIGHBORS, measure=MEASURE)
    return TaskResult({str(k): round(quality, 4) for (k, _), quality in choice.quality.items()})


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Compare every method with Single, and return the curves over k."""
    quality = dict(results["baselines"].values)
    movies = quality.pop(MOVIE)
    for task, suffix in (("paper", ", the paper's mean, k=400"), ("chosen", "")):
        quality |= {f"KNN {mode.capitalize()}{suffix}": values for mode, values in results[task].values.items()}
    curves = {name: results[f"curve, {name}"].figures for name in ("mean", DESCRIPTION)}
    single = float(quality["Single RankRLS"].mean())
    return {
        "methods": table(quality, groups=movies),
        "quality by k": curves,
        "best of the curve over Single": {n: round(max(c.values()) - single, 4) for n, c in curves.items()},
    }


EXPERIMENT = Experiment(
    "knn-msrd",
    "geng",
    {
        "baselines": Task(baselines, MSRD_FILES, 0.2),
        "paper": Task(partial(three_modes, PAPER, "mean"), MSRD_FILES, 0.5),
        "chosen": Task(partial(three_modes, CHOSEN, DESCRIPTION), MSRD_FILES, 0.5),
        "curve, mean": Task(partial(curve, "mean"), MSRD_FILES, 1.0),
        f"curve, {DESCRIPTION}": Task(partial(curve, DESCRIPTION), MSRD_FILES, 1.0),
    },
    summary,
)
