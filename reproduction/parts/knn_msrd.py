"""Geng et al., Figures 7 and 8 on movie search: the one real collection at hand on which KNN gains.

MSRD, its fixed split by movie, NDCG@10. With the paper's description and k, and with the description, k, kernel and
prior that ``python -m benchmarks knn_msrd`` chose on the validation queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kinrank.describe import Describer
from kinrank.measure import NDCG
from kinrank.rankers import Ranker
from kinrank.rankers.knn.ranker import KnnRanker, Mode
from kinrank.rankers.local.choose import choose_neighbors
from kinrank.rankers.query_class import QueryClassRanker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import MSRD_FILES, DataFolder
from reproduction.part import Findings, Part, Piece
from reproduction.rows import per_query, table

REFERENCE = "bm25_all"
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
    """A KNN ranker with chosen settings."""
    own = {name: value for name, value in settings.items() if name != "n_components"}
    describer = Describer(blocks, reference=REFERENCE, n_components=settings.get("n_components"))
    return KnnRanker(mode=mode, describe=describer, **own)


def baselines(data: DataFolder) -> Findings:
    """NDCG@10 of every test query with one model, and with one of three."""
    train, _, test = data.msrd()
    rankers: dict[str, Ranker] = {
        "Single RankRLS": SingleRanker("rankrls"),
        "QC, 3 types found": QueryClassRanker(n_types=3, describe=DESCRIPTION, reference=REFERENCE),
    }
    return Findings(values={name: per_query(ranker.fit(train), test) for name, ranker in rankers.items()})


def three_modes(settings: Mapping[str, Any], blocks: str, data: DataFolder) -> Findings:
    """NDCG@10 of every test query under the three modes."""
    train, _, test = data.msrd()
    ranker = knn(settings, blocks, "offline-1").fit(train)
    modes: tuple[Mode, ...] = ("online", "offline-1", "offline-2")
    return Findings(values={mode: per_query(ranker.set_params(mode=mode), test) for mode in modes})


def curve(blocks: str, data: DataFolder) -> Findings:
    """NDCG@10 of KNN Online on test queries for every k, without prior or kernel, as in the paper."""
    train, _, test = data.msrd()
    components = CHOSEN["n_components"] if blocks == DESCRIPTION else None
    ranker = knn({"n_components": components}, blocks).fit(train)
    choice = choose_neighbors(ranker, test, NEIGHBORS, measure=MEASURE)
    return Findings({str(k): round(quality, 4) for (k, _), quality in choice.quality.items()})


def summary(found: Mapping[str, Findings]) -> dict[str, Any]:
    """Every method against Single, and the curves over k."""
    quality = dict(found["baselines"].values)
    for piece, suffix in (("paper", ", the paper's mean, k=400"), ("chosen", "")):
        quality |= {f"KNN {mode.capitalize()}{suffix}": values for mode, values in found[piece].values.items()}
    curves = {name: found[f"curve, {name}"].figures for name in ("mean", DESCRIPTION)}
    single = float(quality["Single RankRLS"].mean())
    return {
        "methods": table(quality),
        "quality by k": curves,
        "best of the curve over Single": {n: round(max(c.values()) - single, 4) for n, c in curves.items()},
    }


PART = Part(
    "knn-msrd",
    "geng",
    {
        "baselines": Piece(baselines, MSRD_FILES, 0.2),
        "paper": Piece(partial(three_modes, PAPER, "mean"), MSRD_FILES, 0.5),
        "chosen": Piece(partial(three_modes, CHOSEN, DESCRIPTION), MSRD_FILES, 0.5),
        "curve, mean": Piece(partial(curve, "mean"), MSRD_FILES, 1.0),
        f"curve, {DESCRIPTION}": Piece(partial(curve, DESCRIPTION), MSRD_FILES, 1.0),
    },
    summary,
)
