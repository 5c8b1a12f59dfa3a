"""The section on Hoi and Jin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reproduction.markdown import details, mapping_table, number, table

NORMALIZED = {"minmax": "0..1", "standard": "standard", "none": "raw", "chosen": "by validation"}
METHODS = ("RankSVM", "SER", "SSER")
GAINS = ("SER over RankSVM without penalty", "SER over RankSVM", "SSER over SER", "SSER over RankSVM")


def render(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the blocks of the section."""
    results, time = figures["ensemble"], figures["ensemble-time"]
    yield (
        f"The paper's own data: OHSUMED with 25 rankers, five folds, {results['queries']} queries; C = 1, δ = 1, "
        "θ = 0.5. γ and RankSVM's λ are chosen on the validation queries. The paper does not state how scores are "
        "normalized. LETOR's own baselines scale to 0..1 within a query, so this is the main row; the others show that "
        "the verdicts do not depend on it. [Ensembles](#ensembles-ser-and-sser) describes the method."
    )
    yield "MAP, and differences in average precision (p of a paired t-test):\n\n" + _variants(results)
    yield "![MAP of the methods, precision by rank, and MAP by γ](../figures/reproduction-ensemble.svg)"
    spread = results["spread over gamma"]
    yield (
        "**γ** makes little difference: over γ = 0.2 to 10, MAP is "
        + "; ".join(f"{_range(spread[how])} ({NORMALIZED[how]})" for how in spread)
        + ". **Equation 7**, the general similarity exp(-d(A, R)/λ), is below the trace in Equation 6: MAP "
        + " and ".join(
            f"{results['table'][f'SER, {distance} (Eq. 7)']['MAP']:.4f} ({distance})"
            for distance in ("spectral", "bregman")
        )
        + " with λ the median distance."
    )
    yield _tuned(figures["ensemble-tuned"])
    yield from _when(figures["map-ensemble"])
    yield details("RankSVM by normalization and λ", _penalties(results))
    yield details(
        "Figures 1 and 2: MAP and precision at 1 to 10",
        mapping_table("method", results["table"], ["MAP", *(f"P@{k}" for k in range(1, 11))]),
    )
    yield details("Figure 3: MAP by γ", *_gamma(results))
    yield details("Table 3: time", _time(time))


def _tuned(results: Mapping[str, Any]) -> str:
    names = list(results["all"]["tests"])
    rows = [
        [f"{size} training queries", *(f"{tests[name]['difference']:+.4f} ({tests[name]['p']:.2g})" for name in names)]
        for size, tests in ((size, each["tests"]) for size, each in results.items())
    ]
    smallest = min(each["p Holm"] for found in results.values() for each in found["tests"].values())
    return (
        "**C tuned as λ is.** C = 1 is the paper's, while RankSVM's λ is chosen among six values. If C is chosen among "
        "as many (and SSER chooses γ and C together), differences in average precision (p) are as below. Few training "
        f"queries are four draws, averaged. The smallest of the {len(rows) * len(names)} p-values is "
        f"{smallest:.2g} after Holm's correction.\n\n" + table(["", *names], rows)
    )


def _when(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## When ensembles gain"
    yield "![Gain of SER and SSER over two dials, and collections](../figures/reproduction-when-ensemble.svg)"
    few = results["corners"]["few queries, shared errors"]
    best = max(max(row) for row in results["gain"]["SSER over RankSVM"])
    yield (
        "Generated worlds of 25 equally good rankers; the dials are the number of training queries and how much of "
        "their errors the rankers share. SER gains over a RankSVM that is hardly regularized if few queries are judged "
        f"({few['SER over RankSVM without penalty']['gain']:+.3f} with 5): nonnegative weights overfit less. A λ "
        f"chosen on validation queries does the same for RankSVM ({few['SER over RankSVM']['gain']:+.3f}); in no "
        f"world does SSER gain more than {best:.3f} over it.\n\n"
        "Collections are placed by their number of training queries and the rank correlation of their rankers; the "
        "features of OHSUMED and MQ2008 serve as rankers. Here C is 1 in all of them: what SSER gains over SER with "
        "fewer training queries and on MQ2008 may be regularization. Gain in MAP (p):\n\n"
        + table(
            ["", "rank correlation", *GAINS],
            [
                [name, f"{each['redundancy']:.2f}", *(f"{each[g]['gain']:+.4f} ({each[g]['p']:.2g})" for g in GAINS)]
                for name, each in results["places"].items()
            ],
        )
    )


def _variants(results: Mapping[str, Any]) -> str:
    rows = []
    for how, words in NORMALIZED.items():
        tests = (results["tests"][f"{pair} ({how})"] for pair in ("SER - RankSVM", "SSER - RankSVM", "SSER - SER"))
        rows.append(
            [
                words,
                *(f"{results['table'][f'{method} ({how})']['MAP']:.4f}" for method in METHODS),
                *(f"{test['difference']:+.4f} ({test['p']:.2f})" for test in tests),
            ]
        )
    return table(["scores", *METHODS, "SER - RankSVM", "SSER - RankSVM", "SSER - SER"], rows)


def _range(spread: Mapping[str, float]) -> str:
    low, high = (spread[name] for name in spread if name.endswith("to 10"))
    return f"{low:.4f} to {high:.4f}"


def _penalties(results: Mapping[str, Any]) -> str:
    by_penalty = results["RankSVM by penalty"]
    words = NORMALIZED | {"all queries": "standardized over all queries"}
    rows = [
        [words[how], *(f"{value:.4f}" for value in row.values()), f"{results['table'][f'RankSVM ({how})']['MAP']:.4f}"]
        for how, row in by_penalty.items()
    ]
    return "MAP on the test queries:\n\n" + table(
        ["scores", *(f"λ = {penalty}" for penalty in by_penalty["minmax"]), "λ by validation"], rows
    )


def _gamma(results: Mapping[str, Any]) -> Iterator[str]:
    gammas = [number(gamma) for gamma in results["gammas"]]
    spread = results["spread over gamma"]
    curves = {NORMALIZED[how]: results["MAP by gamma"][f"{how} test"] for how in spread}
    rows = {words: dict(zip(gammas, curve, strict=True)) for words, curve in curves.items()}
    yield "On the test queries:\n\n" + mapping_table("γ", rows, gammas)
    yield table(
        ["", *(NORMALIZED[how] for how in spread)],
        [[name, *(each[name] for each in spread.values())] for name in spread["minmax"]],
    )


def _time(time: Mapping[str, Any]) -> str:
    trials = [f"trial {trial}" for trial in range(1, 6)]
    return (
        "CPU seconds of one thread. The paper reports 37,076 and 1,229 (two RankSVMs), 6.3 (SER) and 7.5 (SSER).\n\n"
        + table(
            ["", *trials, "mean"],
            [[name, *seconds, time["mean seconds"][name]] for name, seconds in time["seconds"].items()],
        )
    )
