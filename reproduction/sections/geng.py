"""Geng et al. on the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reproduction.markdown import by_name, table
from reproduction.parts.intents import MEASURES, MODES
from reproduction.parts.query_map import DESCRIPTIONS


def text(figures: Mapping[str, Any]) -> Iterator[str]:
    """Blocks of Markdown."""
    yield (
        "The paper's data, 1,900 and 3,800 queries of a search engine, are not public. Its experiments are run on "
        "worlds of the same sizes (`kinrank.datasets.make_intents`), and on real collections: movie search (MSRD), web "
        "search (mwmbl) and LETOR. The learner is RankRLS, which ranks as RankSVM does "
        "([learners](learners.md)); λ = 0.01, T = 50."
    )
    yield "### Figure 1: queries of different intents"
    yield "![849 queries of three intents and others, mixed, in two principal components](figures/reproduction-map.svg)"
    yield _map(figures["query-map"])
    yield "### Figure 7: KNN against Single and QC"
    yield "![NDCG at 1, 3, 5, 10 and its mean, five methods](figures/reproduction-intents.svg)"
    yield from _intents(figures["intents"])
    yield from _real(figures)
    yield "### Figures 8 and 9: over k"
    yield "![Quality rises, is flat and falls over k; change ratios fall to zero](figures/reproduction-curves.svg)"
    yield _curves(figures["intent-curves"]["shape"])
    yield "![Quality over k on movie search](figures/reproduction-movies.svg)"
    yield "### Theorem 1"
    yield _bound(figures["bound"])


def _map(found: Mapping[str, Any]) -> str:
    rows = [
        [
            description,
            found[description]["numbers per query"],
            found[description]["variance in two dimensions"],
            found[description]["neighbors of the same intent"]["share"],
            found[description]["neighbors of the same intent"]["by lot"],
            found[description]["F1 of lines in two dimensions"],
            found[description]["F1 of lines in all dimensions"],
        ]
        for description in DESCRIPTIONS
    ]
    header = [
        "description",
        "numbers",
        "variance in two dimensions",
        "of 10 neighbors, same intent",
        "the same by lot",
        "F1 of straight lines, two dimensions",
        "all dimensions",
    ]
    return (
        "mwmbl's queries and labels (eight intents) in place of TREC 2004's (three). Intents are mixed, and no "
        "straight line tells them apart in the plane; neighbors share an intent twice as often as "
        "chance would have it.\n\n" + table(header, rows)
    )


def _intents(found: Mapping[str, Any]) -> Iterator[str]:
    for size, each in found.items():
        yield f"Generated intents, {size} queries, three worlds together:\n\n" + by_name(
            "method", each["all seeds"], list(MEASURES)
        )
    header = ["p, paired t on mean NDCG", *(f"{size}, {what}" for size in found for what in ("all", "worlds"))]
    rows = []
    for mode in MODES:
        for baseline in ("Single", "QC"):
            name = f"{mode} over {baseline}"
            cells: list[object] = [name]
            for each in found.values():
                worlds = each["p by seed"].values()
                cells += [each["p of all seeds"][name], " / ".join(f"{world[name]:g}" for world in worlds)]
            rows.append(cells)
    yield "Negative where the method is worse.\n\n" + table(header, rows)


def _real(figures: Mapping[str, Any]) -> Iterator[str]:
    columns = ["NDCG@10", "gain", "low", "high", "p", "p Holm"]
    yield (
        "Real collections, NDCG@10, gain over Single with its 95% interval. Movie search, by the paper's settings and "
        "by those that validation chose:\n\n" + by_name("MSRD", figures["knn-msrd"]["methods"], columns)
    )
    yield "Web search, local weights shrunk to the global model:\n\n" + by_name(
        "mwmbl", figures["query-class"], columns
    )
    yield "LETOR, five folds, k and prior chosen on validation:"
    for collection, found in figures["knn-letor"].items():
        rows = {name: row for name, row in found.items() if name != "chosen by fold"}
        yield by_name(collection, rows, columns[:5])


def _curves(shape: Mapping[str, float]) -> str:
    return (
        "The smaller world of seed 1, as the paper shows Dataset 1; change ratios of both sizes. "
        "What the paper reads off its curves:\n\n"
        + table(["", "here"], [[name, value] for name, value in shape.items()])
    )


def _bound(found: Mapping[str, Any]) -> str:
    return (
        "40 generated queries, RankSVM with the plain hinge, λ = 0.01, k = 100. The bound κ²/λ · γ holds, and is far "
        "from tight.\n\n" + table(["", "here"], [[name, value] for name, value in found.items()])
    )
