"""The section on Geng et al."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reproduction.experiments.intents import MEASURES, MODES
from reproduction.experiments.query_map import DESCRIPTIONS
from reproduction.markdown import mapping_table, table


def render(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the blocks of the section."""
    yield (
        "The paper's data, 1,900 and 3,800 queries of a search engine, are not public. Its experiments are repeated on "
        "generated data sets of the same sizes (`kinrank.datasets.make_intents`) and on real collections: movie search "
        "(MSRD), web search (mwmbl) and LETOR. The learner is RankRLS, whose quality is that of RankSVM "
        "([learners](learners.md)); λ = 0.01, T = 50."
    )
    yield "### Figure 1: queries of different intents"
    yield "![849 queries of three intents and others, mixed, in two principal components](figures/reproduction-map.svg)"
    yield _map(figures["query-map"])
    yield "### Figure 7: KNN compared with Single and QC"
    yield "![NDCG at 1, 3, 5, 10 and its mean, five methods](figures/reproduction-intents.svg)"
    yield from _intents(figures["intents"])
    yield from _real(figures)
    yield "### Figures 8 and 9: quality and change ratio over k"
    yield "![Quality rises, is flat and falls over k; change ratios fall to zero](figures/reproduction-curves.svg)"
    yield _curves(figures["intent-curves"]["shape"])
    yield "![Quality over k on movie search](figures/reproduction-movies.svg)"
    yield "### Theorem 1"
    yield _bound(figures["bound"])


def _map(results: Mapping[str, Any]) -> str:
    rows = [
        [
            description,
            results[description]["numbers per query"],
            results[description]["variance in two dimensions"],
            results[description]["neighbors of the same intent"]["share"],
            results[description]["neighbors of the same intent"]["by chance"],
            results[description]["F1 of lines in two dimensions"],
            results[description]["F1 of lines in all dimensions"],
        ]
        for description in DESCRIPTIONS
    ]
    header = [
        "description",
        "numbers",
        "variance in two dimensions",
        "share of 10 neighbors with the same intent",
        "by chance",
        "F1 of a linear classifier, two dimensions",
        "F1, all dimensions",
    ]
    return (
        "mwmbl's queries and eight intents replace TREC 2004's three. Intents are mixed, and no straight line "
        "separates them in the plane. Neighbors share an intent about twice as often as by chance.\n\n"
        + table(header, rows)
    )


def _intents(results: Mapping[str, Any]) -> Iterator[str]:
    for size, each in results.items():
        yield f"Generated intents, {size} queries, three seeds together:\n\n" + mapping_table(
            "method", each["all seeds"], list(MEASURES)
        )
    header = ["p, paired t on mean NDCG", *(f"{size}, {what}" for size in results for what in ("all seeds", "by seed"))]
    rows = []
    for mode in MODES:
        for baseline in ("Single", "QC"):
            name = f"{mode} over {baseline}"
            cells: list[object] = [name]
            for each in results.values():
                by_seed = each["p by seed"].values()
                cells += [each["p of all seeds"][name], " / ".join(f"{one[name]:g}" for one in by_seed)]
            rows.append(cells)
    yield "p is negative if the method is worse than the baseline.\n\n" + table(header, rows)


def _real(figures: Mapping[str, Any]) -> Iterator[str]:
    columns = ["NDCG@10", "gain", "low", "high", "p", "p Holm"]
    yield (
        "Real collections: NDCG@10, and the gain over Single with its 95% interval. Movie search, with the paper's "
        "settings and with those chosen on the validation queries:\n\n"
        + mapping_table("MSRD", figures["knn-msrd"]["methods"], columns)
    )
    yield "Web search, with local weights shrunk to the global model:\n\n" + mapping_table(
        "mwmbl", figures["query-class"], columns
    )
    yield "LETOR, five folds, k and prior chosen on the validation queries:"
    for collection, results in figures["knn-letor"].items():
        rows = {name: row for name, row in results.items() if name != "chosen by fold"}
        yield mapping_table(collection, rows, columns[:5])


def _curves(shape: Mapping[str, float]) -> str:
    return (
        "The smaller data set of seed 1, like the paper's Dataset 1; change ratios for both sizes. "
        "The properties that the paper describes:\n\n"
        + table(["", "measured"], [[name, value] for name, value in shape.items()])
    )


def _bound(results: Mapping[str, Any]) -> str:
    return (
        "40 generated queries, RankSVM with the plain hinge, λ = 0.01, k = 100. The bound κ²/λ · γ holds, but is far "
        "from tight.\n\n" + table(["", "measured"], [[name, value] for name, value in results.items()])
    )
