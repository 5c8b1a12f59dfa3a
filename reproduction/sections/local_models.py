"""The section on local models with rank aggregation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reproduction.experiments.cluster_methods import MEASURES, METHODS
from reproduction.experiments.cluster_oracles import CHANCE, LINES
from reproduction.markdown import mapping_table, table


def render(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the blocks of the section."""
    yield (
        "MQ2007 and MQ2008 with LETOR's folds and conventions, as in the paper. "
        "[Cluster models](cluster.md) describes the method."
    )
    yield "### The baseline: LETOR's published RankSVM"
    yield from _baselines(figures["letor-baselines"])
    yield "### Table 2: compared with global models"
    yield (
        "Settings are chosen on the validation queries by MAP. p is that of a paired t-test on average precision "
        "against our RankSVM."
    )
    for collection, results in figures["cluster-methods"].items():
        yield _methods(collection, results)
    yield "### Figures 2 and 3: choosing the best local model"
    yield "![MAP by number of clusters, and of always the r-th best model](figures/reproduction-oracles.svg)"
    yield _oracles(figures["cluster-oracles"])
    yield "### Figure 4 and Table 3: by difficulty"
    yield "![Queries by number of relevant documents](figures/reproduction-relevant.svg)"
    yield _shares(figures["relevant-counts"])
    for collection, results in figures["cluster-methods"].items():
        yield _difficulty(collection, results)


def _baselines(results: Mapping[str, Any]) -> Iterator[str]:
    columns = ["NDCG@1", "NDCG@3", "NDCG@5", "NDCG@10", "MAP", "MeanNDCG"]
    for collection in ("MQ2007", "MQ2008", "OHSUMED"):
        yield mapping_table(collection, results[collection], columns)
    yield "OHSUMED's published row matches weak regularization. RankSVM by penalty λ:\n\n" + mapping_table(
        "λ", results["OHSUMED by penalty"], ["NDCG@1", "NDCG@10", "MAP"]
    )


def _methods(collection: str, results: Mapping[str, Any]) -> str:
    p = "p against RankSVM (MAP)"
    rows = {f"{name}, published": row for name, row in results["published"].items()} | results["methods"]
    return mapping_table(collection, rows, [*MEASURES, p])


def _oracles(results: Mapping[str, Any]) -> str:
    rows: list[list[object]] = []
    for collection, each in results.items():
        rows += [[f"{collection}, {line}", *each[line]] for line in LINES]
        rows.append([f"{collection}, RankSVM", *[each["RankSVM"]] * len(each["n_clusters"])])
    counts = next(iter(results.values()))["n_clusters"]
    ranks = [
        [
            collection,
            each["RankSVM equals the r-th best, clusters"],
            each[f"RankSVM equals the r-th best, {CHANCE}"],
            f"{min(each['models of 100 clusters'])} to {max(each['models of 100 clusters'])}",
        ]
        for collection, each in results.items()
    ]
    return (
        "MAP by number of clusters, λ = 0.01, no setting tuned. *Random groups* have the sizes of the clusters but "
        "random queries: with many models, UpperBound is due to chance.\n\n"
        + table(["clusters", *counts], rows)
        + "\n\nAlways choosing the r-th best of the models of 100 clusters; some clusters get no query.\n\n"
        + table(["", "RankSVM equals r", "with random groups", "models"], ranks)
    )


def _shares(results: Mapping[str, Any]) -> str:
    rows = [
        [f"{collection}, {rule}", *shares.values()]
        for collection, each in results.items()
        for rule, shares in each["percent"].items()
    ]
    return (
        "Percentage of queries without relevant documents, hard (fewer than 4), normal and easy. The paper defines "
        "easy as *more than 20*, but its shares match *20 or more*.\n\n"
        + table(["", "none", "hard", "normal", "easy"], rows)
    )


def _difficulty(collection: str, results: Mapping[str, Any]) -> str:
    levels = ["hard", "normal", "easy"]
    counts = results["queries by difficulty"]
    header = [f"{collection}, MAP", *(f"{level} ({counts[level]:,})" for level in levels)]
    by_level = results["by difficulty (MAP)"]
    return table(header, [[method, *(by_level[method][level] for level in levels)] for method in METHODS])
