"""The section on Zha et al."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reproduction.markdown import mapping_table, table

SHOWN = "MQ2007"
"""The collection with long tables: the largest one with five folds."""


def render(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the blocks of the section."""
    results = figures["atvt"]
    yield (
        "The paper's two data sets are not public; four public collections replace them. Both sides are LightGBM with "
        "the same trees. The measure is DCG@5, p is Wilcoxon's. [aTVT](atvt.md) describes the method."
    )
    yield "### Tables 2 and 3: with and without aTVT"
    yield "![Gain in DCG@5 by penalties on four collections](figures/reproduction-atvt.svg)"
    yield "Each row is a setting of p, λ_α and λ_β. Blue marks Wilcoxon's p < 0.05, not corrected for nine settings."
    yield "Penalties chosen on the validation queries:\n\n" + table(
        ["", "test queries", "without", "with aTVT", "gain, %", "p", "LambdaMART with the same trees"],
        [
            [
                name,
                each["test queries"],
                each["without"],
                each["with, penalties by validation"],
                each["gain %"],
                each["p"],
                each["LambdaMART"],
            ]
            for name, each in results.items()
        ],
    )
    yield "Gain of each setting in percent (p):\n\n" + table(
        ["", *results],
        [
            [setting, *(_gain(each["each setting"][setting]) for each in results.values())]
            for setting in results[SHOWN]["each setting"]
        ],
    )
    yield "### Table 4: α and β of the training queries"
    moments = list(next(iter(results[SHOWN]["lines"].values())))
    yield f"{SHOWN}:\n\n" + table(
        ["", *moments], [[setting, *line.values()] for setting, line in results[SHOWN]["lines"].items()]
    )
    yield "### Tables 5, 6 and 7: which queries gain"
    yield "Change of DCG@5 at percentiles of the test queries, λ_α = 10, λ_β = 1:\n\n" + table(
        ["", *results[SHOWN]["gain by percentile"]],
        [[name, *each["gain by percentile"].values()] for name, each in results.items()],
    )
    yield f"Fifths of the test queries of {SHOWN} by change of DCG@5, and the mean line of each fifth:\n\n" + table(
        ["", "change", "mean α", "mean β"],
        [[f"fifth {i}", *each.values()] for i, each in enumerate(results[SHOWN]["fifths by gain"], start=1)],
    )
    yield "Mean α of the test queries by change of their DCG:\n\n" + mapping_table(
        "", {name: each["mean α"] for name, each in results.items()}, list(results[SHOWN]["mean α"]), digits=3
    )
    yield "Thirds by the distance of their line from α = 1, β = 0; gain in percent (p):\n\n" + table(
        ["", "least moved", "middle", "most moved"],
        [[name, *map(_gain, each["thirds, least moved first"])] for name, each in results.items()],
    )


def _gain(results: Mapping[str, float]) -> str:
    return f"{results['gain %']:+.2f} ({results['p']:.2g})"
