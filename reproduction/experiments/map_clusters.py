"""Find out when cluster models gain: the worlds of `reproduction.experiments.map_local`, with three clusters.

Naive and Transform are compared with one RankSVM, NDCG@10 on test queries. The worlds have three intents, so three
clusters are the right number.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from kinrank.learn.ranksvm import RankSVM
from kinrank.papers.cluster import ClusterRanker
from kinrank.rankers.single import SingleRanker
from reproduction.data_folder import DataFolder
from reproduction.experiment import Experiment, Task, TaskResult
from reproduction.experiments.map_local import PENALTY, corners, gain, generate
from reproduction.rows import per_query

SPREADS = (0.0, 0.2, 0.4, 0.7, 1.0)
REVEALED = (0.0, 0.5, 0.9)
METHODS: dict[str, Literal["naive", "transform"]] = {"Naive": "naive", "Transform": "transform"}


def world(spread: float, _: DataFolder) -> TaskResult:
    """Measure the worlds of one spread."""
    figures: dict[str, Any] = {}
    for revealed in REVEALED:
        train, test = generate(spread, revealed)
        single = per_query(SingleRanker(RankSVM(PENALTY)).fit(train), test)
        figures[f"{revealed:g}"] = {}
        for name, mode in METHODS.items():
            clusters = ClusterRanker(3, mode=mode, reference="reference", learner=RankSVM(PENALTY)).fit(train)
            figures[f"{revealed:g}"][name] = gain(per_query(clusters, test), single)
    return TaskResult(figures)


def summary(results: Mapping[str, TaskResult]) -> dict[str, Any]:
    """Return the map of each method."""
    worlds = {f"{spread:g}": results[f"spread {spread:g}"].figures for spread in SPREADS}
    return {
        "spread": SPREADS,
        "revealed": REVEALED,
        "gain": {
            name: [
                [worlds[f"{spread:g}"][f"{revealed:g}"][name]["gain"] for spread in SPREADS] for revealed in REVEALED
            ]
            for name in METHODS
        },
        "corners": corners(worlds),
    }


EXPERIMENT = Experiment(
    "map-clusters",
    "local-models",
    {f"spread {spread:g}": Task(partial(world, spread), minutes=0.2) for spread in SPREADS},
    summary,
)
