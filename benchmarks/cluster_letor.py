"""Cluster models with rank aggregation on MQ2007 and MQ2008: none beats RankSVM, and UpperBound is mostly luck.

Five folds, LETOR's conventions. Number of clusters, penalty, and what else a mode has are chosen on validation by MAP,
the same for RankSVM. By difficulty, with the paper's oracles: the best model always (UpperBound), Naive that knows the
relevant documents (RelevantOnly), and always the r-th best of the models of 100 clusters; beside them what the same
oracles reach with groups of queries drawn by lot.
``--figure docs`` draws the oracles into docs/figures/cluster_oracles.svg.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import letor_folds, say
from kinrank import ClusterRanker, QuerySet, SingleRanker
from kinrank.learn.ranksvm import RankSVM
from kinrank.measure import LETOR_MAP, LETOR_NDCG, MEAN_NDCG_LETOR, Measure, P, compare_paired, evaluate
from kinrank.measure.difficulty import difficulty_levels, mean_by_level
from kinrank.measure.oracle import rank_curve, rank_of, upper_bound
from kinrank.rankers import Ranker

OPTIONS = {"figure": ("none", "docs")}

COLLECTIONS = ("MQ2007", "MQ2008")
BM25 = 24  # of the whole document, the last of the five BM25 columns
MEASURES: dict[str, Measure] = {
    **{f"P@{k}": P @ k for k in (1, 2, 5, 10)},
    "MAP": LETOR_MAP,
    **{f"NDCG@{k}": LETOR_NDCG @ k for k in (1, 3, 5, 10)},
    "MeanNDCG": MEAN_NDCG_LETOR,
}
PENALTIES = (0.01, 0.1)
CLUSTERS = (2, 5, 10, 20, 50)
ORACLE_CLUSTERS = (2, 5, 10, 20, 50, 100)
CHANCE = "random groups"
LINES = ("UpperBound", f"UpperBound, {CHANCE}", "RelevantOnly", "Naive")
# Published with LETOR 4.0.
PUBLISHED_MEASURES = ("MAP", "NDCG@1", "NDCG@3", "NDCG@5", "MeanNDCG")
PUBLISHED = {
    "MQ2007": {
        "RankSVM": (0.4645, 0.4096, 0.4063, 0.4143, 0.4966),
        "ListNet": (0.4652, 0.4002, 0.4091, 0.4170, 0.4988),
        "RankBoost": (0.4662, 0.4134, 0.4072, 0.4183, 0.5003),
        "AdaRank-MAP": (0.4577, 0.3821, 0.3984, 0.4070, 0.4891),
    },
    "MQ2008": {
        "RankSVM": (0.4696, 0.3627, 0.4286, 0.4695, 0.4832),
        "ListNet": (0.4775, 0.3754, 0.4324, 0.4747, 0.4914),
        "AdaRank-NDCG": (0.4824, 0.3826, 0.4420, 0.4821, 0.4950),
    },
}


def run(figure: str = "none") -> dict[str, object]:
    """Of each collection: tables of test measures, by difficulty, settings chosen, and the oracles."""
    figures: dict[str, Any] = {}
    for collection in COLLECTIONS:
        figures[collection] = {**_methods(collection), "oracles": _oracles(collection)}
    if figure == "docs":
        _draw({name: found["oracles"] for name, found in figures.items()})
    return figures


def _methods(collection: str) -> dict[str, Any]:
    """Test figures of every method, its settings chosen fold by fold."""
    values: dict[str, dict[str, list[np.ndarray]]] = {}
    chosen: dict[str, list[dict[str, float]]] = {}
    levels = []
    for train, validation, test in letor_folds(collection):
        levels.append(difficulty_levels(test.grades, test.offsets))
        for method, candidates in _candidates().items():
            tried = [(settings, ranker.fit(train)) for settings, ranker in candidates]
            settings, ranker = max(tried, key=lambda pair: _map(pair[1], validation).mean())
            chosen.setdefault(method, []).append(settings)
            per_query = evaluate(test, ranker.predict(test), MEASURES.values()).per_query
            table = values.setdefault(method, {name: [] for name in MEASURES})
            for name, measure in MEASURES.items():
                table[name].append(per_query[measure])
    level = np.concatenate(levels)
    published = {name: dict(zip(PUBLISHED_MEASURES, row, strict=True)) for name, row in PUBLISHED[collection].items()}
    figures: dict[str, Any] = {"published": published, "methods": {}, "by difficulty (MAP)": {}}
    single = np.concatenate(values["RankSVM"]["MAP"])
    for method, table in values.items():
        own = np.concatenate(table["MAP"])
        row = {name: round(float(np.mean([fold.mean() for fold in folds])), 4) for name, folds in table.items()}
        if method != "RankSVM":
            row["p against RankSVM (MAP)"] = float(f"{compare_paired(own, single).p:.2g}")
        figures["methods"][method] = row
        means = mean_by_level(own, level)
        figures["by difficulty (MAP)"][method] = {name: round(each.mean, 4) for name, each in means.items()}
        say(f"{collection} {method:12} {row} {figures['by difficulty (MAP)'][method]}")
    counts = {name: each.queries for name, each in mean_by_level(single, level).items()}
    return {**figures, "queries by difficulty": counts, "chosen": chosen}


def _candidates() -> dict[str, Iterator[tuple[dict[str, float], Ranker]]]:
    """For each method the settings to choose from, simplest first: of equals the first is taken."""
    more = {"naive": ("top", (5, 20)), "select": ("n_neighbors", (5, 50)), "transform": ("top", (5, 20))}

    def clusters(mode: str) -> Iterator[tuple[dict[str, float], Ranker]]:
        name, choices = more[mode]
        for n_clusters, penalty, choice in product(CLUSTERS, PENALTIES, choices):
            yield (
                {"n_clusters": n_clusters, "penalty": penalty, name: choice},
                _cluster(mode, n_clusters, penalty, {name: choice}),
            )

    singles = (({"penalty": penalty}, SingleRanker(RankSVM(penalty), scale="none")) for penalty in PENALTIES)
    return {
        "RankSVM": singles,
        "Naive": clusters("naive"),
        "SelectRanker": clusters("select"),
        "Transform": clusters("transform"),
    }


def _cluster(mode: Any, n_clusters: int, penalty: float = 0.01, more: dict[str, Any] | None = None) -> ClusterRanker:
    return ClusterRanker(n_clusters, mode=mode, reference=BM25, learner=RankSVM(penalty), scale="none", **(more or {}))


def _map(ranker: Ranker, queries: QuerySet) -> np.ndarray:
    return LETOR_MAP.per_query(ranker.predict(queries), queries.grades, queries.offsets)


def _oracles(collection: str) -> dict[str, Any]:
    """Test MAP of RankSVM, Naive and its oracles by number of clusters, and of the r-th best of 100; nothing chosen."""
    single: list[float] = []
    curves: dict[str, list[np.ndarray]] = {"clusters": [], CHANCE: []}
    lines: dict[str, list[list[float]]] = {name: [] for name in LINES}
    for train, _, test in letor_folds(collection):
        single.append(_map(SingleRanker(RankSVM(), scale="none").fit(train), test).mean())
        by_count = []
        for n_clusters in ORACLE_CLUSTERS:
            ranker = _cluster("naive", n_clusters).fit(train)
            models = _map_of_models(ranker.local_scores(test), test)
            chance = _map_of_models(_random_groups(train, ranker.labels_) @ test.X.T, test)
            relevant = LETOR_MAP.mean(ranker.predict_relevant_only(test), test.grades, test.offsets)
            naive = _map(ranker, test).mean()
            by_count.append((upper_bound(models).mean(), upper_bound(chance).mean(), relevant, naive))
        for name, line in zip(LINES, zip(*by_count, strict=True), strict=True):
            lines[name].append(list(line))
        curves["clusters"].append(rank_curve(models))
        curves[CHANCE].append(rank_curve(chance))
    baseline = float(np.mean(single))
    found: dict[str, Any] = {
        "n_clusters": list(ORACLE_CLUSTERS),
        "RankSVM": round(baseline, 4),
        **{name: np.mean(folds, axis=0).round(4).tolist() for name, folds in lines.items()},
        "models of 100 clusters": [len(curve) for curve in curves["clusters"]],
    }
    for name, folds in curves.items():
        n_models = min(map(len, folds))  # empty clusters are dropped, so folds differ
        curve = np.mean([each[:n_models] for each in folds], axis=0)
        found[f"r-th best, {name}"] = curve.round(4).tolist()
        found[f"RankSVM equals the r-th best, {name}"] = rank_of(baseline, curve)
    say(f"{collection} oracles {found}")
    return found


def _random_groups(train: QuerySet, labels: np.ndarray) -> np.ndarray:
    """Models of groups as large as the clusters, of queries drawn by lot: what choosing among many gains by luck."""
    drawn = np.random.default_rng(0).permutation(labels)
    return np.array([RankSVM().fit(train[drawn == group]).coef_ for group in range(labels.max() + 1)])


def _map_of_models(scores: np.ndarray, test: QuerySet) -> np.ndarray:
    return np.array([LETOR_MAP.per_query(row, test.grades, test.offsets) for row in scores])


def _draw(oracles: dict[str, dict[str, Any]]) -> None:
    """One row per collection: by number of clusters, and by rank."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    ink, colors = "#333333", dict(zip(LINES, ("#1b7837", "#7fbf7b", "#b35806", "#2166ac"), strict=True))
    style: Any = {"svg.hashsalt": "kinrank", "font.size": 10, "axes.spines.top": False, "axes.spines.right": False}
    with mpl.rc_context(style):
        picture = Figure(figsize=(9, 7), layout="constrained", facecolor="white")
        rows = picture.subplots(len(oracles), 2)
        for (by_count, by_rank), (collection, found) in zip(rows, oracles.items(), strict=True):
            for name, color in colors.items():
                line = "o--" if name.endswith(CHANCE) else "o-"
                by_count.plot(found["n_clusters"], found[name], line, color=color, label=name, markersize=4)
            by_count.set(xscale="log", xlabel="clusters", ylabel="MAP", title=f"{collection}: which model ranks")
            by_count.set_xticks(found["n_clusters"], [str(count) for count in found["n_clusters"]])
            by_count.minorticks_off()
            for name, line in (("clusters", "-"), (CHANCE, "--")):
                curve = found[f"r-th best, {name}"]
                color = colors["UpperBound" if name == "clusters" else f"UpperBound, {CHANCE}"]
                by_rank.plot(range(1, len(curve) + 1), curve, line, color=color, label=f"r-th best, {name}")
            equal = (found["RankSVM equals the r-th best, clusters"], found["RankSVM"])
            by_rank.plot(*equal, "o", color=colors["UpperBound"], markersize=5)
            by_rank.annotate(f"r = {equal[0]}", equal, (4, 5), textcoords="offset points", color=ink)
            by_rank.set(xlabel="r", ylabel="MAP", title=f"{collection}: always the r-th best of {len(curve)} models")
            for axes in (by_count, by_rank):
                axes.axhline(found["RankSVM"], color=ink, linestyle=":", linewidth=1.2, label="RankSVM")
                axes.grid(color="#dddddd", linewidth=0.6)
            by_count.legend(frameon=False, fontsize=8.5, loc="upper left")
            by_rank.legend(frameon=False, fontsize=8.5, loc="upper right")
        target = Path(__file__).parents[1] / "docs" / "figures" / "cluster_oracles.svg"
        target.parent.mkdir(exist_ok=True)
        picture.savefig(target, metadata={"Date": None})
    say(f"drawn: {target.relative_to(target.parents[2])}")
