"""The section on Geng et al."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from reproduction.experiments.intents import MEASURES
from reproduction.experiments.knn_cost import RATIO
from reproduction.experiments.query_map import DESCRIPTIONS
from reproduction.markdown import details, mapping_table, number, table

COLUMNS = ["NDCG@10", "gain", "low", "high", "p", "p Holm"]
BY_MOVIE = [*COLUMNS[:5], "p by query", "p Holm"]


def render(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the blocks of the section."""
    yield (
        "The paper's data, 1,900 and 3,800 queries of a search engine, are not public. Real collections replace them: "
        "movie search (MSRD), web search (mwmbl) and LETOR. Generated data sets of the same sizes "
        "(`kinrank.datasets.make_intents`) are built to have the effect. λ = 0.01, T = 50. N_k(q_i), the training set "
        "of the offline model of a judged query, contains q_i itself."
    )
    yield "KNN Online against Single, NDCG@10 on test queries:\n\n" + _overview(figures)
    yield "![Quality over k on movie search](../figures/reproduction-movies.svg)"
    yield _learner(figures["local-learner"])
    yield _normalized(figures["normalized-queries"])
    yield from _when(figures["map-local"])
    yield details("Figure 7 on real collections: all methods", *_real(figures))
    yield details(
        "Figure 7 on generated intents: KNN compared with Single and QC",
        "![NDCG at 1, 3, 5, 10 and its mean, five methods](../figures/reproduction-intents.svg)",
        *_intents(figures["intents"]),
    )
    yield details(
        "Figures 8 and 9 on generated intents: quality and change ratio over k",
        "![Quality rises, is flat and falls over k; change ratios fall to zero](../figures/reproduction-curves.svg)",
        *_curves(figures["intent-curves"]),
    )
    yield details(
        "Figure 8 on LETOR: quality over k",
        "![NDCG over k / m on three LETOR collections](../figures/reproduction-letor-curves.svg)",
        _letor(figures["knn-letor-curves"]),
    )
    yield details(
        "Table 1 and section 3.3.3: costs",
        "![Time of each step over n, m and k, and the cost of the offline models](../figures/reproduction-cost.svg)",
        *_cost(figures["knn-cost"]),
    )
    yield details(
        "Figure 1: queries of different intents",
        "![849 queries of three intents and others, in two principal components](../figures/reproduction-map.svg)",
        _map(figures["query-map"]),
    )
    yield details("Definition 1 and Theorem 1", _bound(figures["bound"]))


def _overview(figures: Mapping[str, Any]) -> str:
    movies, web, letor = (figures[name] for name in ("knn-msrd", "query-class", "knn-letor"))
    compared = [
        ("MSRD, the paper's description and k", movies["methods"], "KNN Online, the paper's mean, k=400"),
        ("MSRD, our description, settings by validation", movies["methods"], "KNN Online"),
        ("mwmbl, our description, k = 100", web, "KNN Online, k=100"),
        *((f"{name}, k and prior by validation", rows, "KNN Online by mean") for name, rows in letor.items()),
    ]
    return table(
        ["", "Single", "KNN Online", "gain", "95% interval", "p"],
        [
            [
                name,
                f"{rows['Single RankRLS']['NDCG@10']:.4f}",
                f"{rows[method]['NDCG@10']:.4f}",
                f"{rows[method]['gain']:+.4f}",
                f"{rows[method]['low']:+.4f} to {rows[method]['high']:+.4f}",
                rows[method]["p"],
            ]
            for name, rows, method in compared
        ],
    )


def _when(results: Mapping[str, Any]) -> Iterator[str]:
    yield "## When KNN gains"
    yield "![KNN's gain over two dials, and collections among the worlds](../figures/reproduction-when-local.svg)"
    yield (
        "Left: 20 generated worlds of 600 training queries. KNN needs both dials: queries that differ, and a "
        "description that shows which ones are alike. Right: what a query asks for beyond the global model (the "
        "gradient of its loss) is compared with what its neighbors ask for. This agreement can be measured before any "
        "local model is learned, and in the worlds it orders the gains (rank correlation "
        f"{number(results['rank correlation of agreement and gain'])}). It places the real collections, too: KNN "
        "gains on those whose neighbors agree with a query.\n\n"
        + mapping_table("", results["places"], ["difference", "agreement of neighbors", "gain", "p"])
    )


def _learner(results: Mapping[str, Any]) -> str:
    words = [
        f"{each['RankRLS']:.4f} against {each['RankSVM']:.4f} on {name} queries (p = {number(each['p'])})"
        for name, each in results.items()
    ]
    return (
        "The learner is RankRLS. Local models by RankRLS rank as those by the paper's RankSVM do: NDCG@10 of KNN "
        f"Online is {' and '.join(words)}."
    )


def _normalized(results: Mapping[str, Any]) -> str:
    raw, scaled, lost = results["raw"], results["normalized"], results["gain lost, summaries"]
    return (
        "*Is LETOR's normalization of features within queries the reason?* In part at most. Normalizing MSRD's "
        f"features in the same way takes KNN's gain by summaries from {raw['summaries']['gain']:+.4f} to "
        f"{scaled['summaries']['gain']:+.4f} (p of the loss {number(lost['p'])}), and with the query text from "
        f"{raw['summaries+text']['gain']:+.4f} to {scaled['summaries+text']['gain']:+.4f}."
    )


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
    rows = [[name, *(each["p of all seeds"][name] for each in results.values())] for name in _first(results)]
    yield "p of paired t-tests on mean NDCG:\n\n" + table(["", *results], rows)


def _first(results: Mapping[str, Any]) -> list[str]:
    return list(next(iter(results.values()))["p of all seeds"])


def _real(figures: Mapping[str, Any]) -> Iterator[str]:
    yield mapping_table("MSRD, p by movie", figures["knn-msrd"]["methods"], BY_MOVIE)
    yield "Web search, with local weights shrunk to the global model:\n\n" + mapping_table(
        "mwmbl", figures["query-class"], COLUMNS
    )
    for collection, results in figures["knn-letor"].items():
        rows = {name: row for name, row in results.items() if name != "chosen by fold"}
        yield mapping_table(collection, rows, COLUMNS[:5])


def _curves(results: Mapping[str, Any]) -> Iterator[str]:
    sizes = [size for size in results if size != "shape"]
    yield "Change ratio by k / m:"
    for size in sizes:
        ratios = results[size]["change ratio by k"]
        counts = list(next(iter(ratios.values())))
        yield table([f"{size}, k", *counts], [[mode, *values.values()] for mode, values in ratios.items()])
    yield "The properties that the paper describes; of the three modes, the worst:\n\n" + table(
        ["", "measured"], [[name, value] for name, value in results["shape"].items()]
    )


def _letor(results: Mapping[str, Any]) -> str:
    tests = "the paper's k over Single"
    return (
        "The paper's description, no prior, nothing tuned. Quality rises with k and hardly falls toward k = m. Gain of "
        "k = 0.27 m, the paper's 400 of 1,500, over Single in NDCG@10 (95% interval):\n\n"
        + table(
            ["", "judged queries", "best k / m of Online", *next(iter(results.values()))[tests]],
            [
                [
                    name,
                    each["m"],
                    each["best k / m of Online"],
                    *(
                        f"{gain['gain']:+.4f} ({gain['low']:+.4f} to {gain['high']:+.4f})"
                        for gain in each[tests].values()
                    ),
                ]
                for name, each in results.items()
            ],
        )
    )


def _cost(results: Mapping[str, Any]) -> Iterator[str]:
    costs = {
        "query feature": "n",
        "rank": "n log n",
        "k nearest": "m log k",
        "the nearest": "m",
        "offline model": "m k",
    }
    steps = results["milliseconds by step"]
    yield (
        "CPU time of one thread, generated queries of 20 features. The exponent is the slope in logarithms: "
        "1 is linear. Finding the offline model uses an inverted index, which costs k lists of k models and one pass "
        "over m.\n\n"
        + table(
            ["step", "the paper's order", "exponent in n", "in m", "in k"],
            [
                [step, order, *(results["exponent"].get(f"{step}, over {size}") for size in "nmk")]
                for step, order in costs.items()
            ],
        )
    )
    yield (
        "A query with 1,000 candidates, 10,000 judged queries and k = 400 takes, in milliseconds: "
        + ", ".join(f"{name} {number(each)}" for name, each in steps.items())
        + ". Training 1,000 offline models, in global fits, where the exponent c of our RankSVM is "
        f"{number(results['exponent']['ranksvm, over m'])}:\n\n"
        + table(
            ["k", *results[RATIO]],
            [
                ["measured, RankRLS", *results[RATIO].values()],
                *(
                    [f"k (k/m)^(c-1), {name.rpartition(', ')[2]}", *results[name].values()]
                    for name in ("the paper's estimate, c = 1.2", "the paper's estimate, c measured")
                ),
            ],
        )
    )


def _bound(results: Mapping[str, Any]) -> str:
    stable, modes = results["Definition 1"], ("offline-1", "offline-2")
    return (
        "40 generated queries, RankSVM with the plain hinge, λ = 0.01, k = 100. The bound κ²/λ · γ holds, but is far "
        f"from tight; κ = {number(results['κ'])} over training and test pairs.\n\n"
        + table(
            ["compared with Online", *modes],
            [[name, *(results[mode][name] for mode in modes)] for name in results[modes[0]]],
        )
        + f"\n\nDefinition 1: leaving out each of {stable['left out']} of {stable['pairs']} training pairs changes no "
        f"loss by more than {number(stable['largest change'])}, where τ(p) = {number(stable['τ(p)'])}."
    )
