"""The section on Hoi and Jin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reproduction.markdown import mapping_table, number, table

NORMALIZED = {"none": "raw scores", "minmax": "0..1", "standard": "standard"}


def render(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the blocks of the section."""
    results, time = figures["ensemble"], figures["ensemble-time"]
    yield (
        "The paper's own data: OHSUMED with 25 rankers, five folds, 106 queries; C = 1, δ = 1, θ = 0.5. The paper does "
        "not state whether scores are normalized. Methods marked *none* use raw scores, *standard* standardized ones, "
        "the others scores scaled to 0..1 within a query. [Ensembles](ensemble.md) describes the method."
    )
    yield "### Figures 1 and 2: MAP, and precision at 1 to 10"
    yield "![MAP of the methods, precision by rank, and MAP by γ](figures/reproduction-ensemble.svg)"
    yield mapping_table("method", results["table"], ["MAP", *(f"P@{k}" for k in range(1, 11))])
    least = min(each["p"] for each in results["tests"].values())
    yield (
        f"Differences of average precision with paired t-tests, plain and corrected by Holm. With {results['queries']} "
        f"queries the smallest p is {number(least)}: a claim below that holds may do so by chance.\n\n"
    ) + mapping_table("", results["tests"], ["difference", "p", "p Holm", "wins", "losses"])
    yield "### Figure 3: MAP by γ"
    gammas = [number(gamma) for gamma in results["gammas"]]
    curves = {words: results["MAP by gamma"][f"{how} test"] for how, words in NORMALIZED.items()}
    rows = {words: dict(zip(gammas, curve, strict=True)) for words, curve in curves.items()}
    yield "On the test queries:\n\n" + mapping_table("γ", rows, gammas)
    yield "### Table 3: time"
    trials = [f"trial {trial}" for trial in range(1, 6)]
    yield (
        "CPU seconds of one thread. The paper reports 37,076 and 1,229 (two RankSVMs), 6.3 (SER) and 7.5 (SSER).\n\n"
        + table(
            ["", *trials, "mean"],
            [[name, *seconds, time["mean seconds"][name]] for name, seconds in time["seconds"].items()],
        )
    )
