"""KinRanker compared with tuned LightGBM, XGBoost and CatBoost: NDCG@10 on eight collections, paired tests, Holm.

Every library tries the same three tree shapes. The peers choose the shape and the number of trees on the validation
queries and are refitted on training and validation queries. KinRanker chooses its shape on the same queries by its
out-of-fold record. Nothing is chosen on test queries, except that "best peer" is the library that is best *on test*,
which favors the peers. "bag" is as many LightGBM models as KinRanker has members (`kinrank.study.peers`). "described"
is LightGBM with the query's description among its features: it has the same information as KinRanker. "without" is
KinRanker without weights per query, "untuned" is KinRanker with its defaults. Holm corrects all tests against the
best peer and the bag together.

MSRD is measured on its fixed split and in five folds by movie over all queries, and tested by movie. Collections with
fewer than 1,000 queries are measured in five folds that are repeated ten times with other seeds, and tested by the
corrected resampled t-test. Everything takes several hours on two idle cores, MSRD in folds about 80 minutes.
Finished parts are kept in ``benchmarks/results`` and not measured again unless the code they depend on changes, so
parts can be run one by one: ``--data-set mwmbl --folds 2 --repeats 0``. A row covers the repeats in which the required
methods are measured, which ``--methods required`` does alone. ``--repeats none`` measures nothing and reports on what
there is. ``--data-set small`` is a generated collection that takes seconds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import kinrank
from benchmarks.common import judged_text, letor_folds, letor_part, log_progress, movie_of, msrd
from benchmarks.libraries import LIBRARIES
from kinrank import KinRanker, QuerySet, SingleRanker, fold_queries
from kinrank.data.split import fold_of_query
from kinrank.data.texts import VECTORS
from kinrank.datasets import make_intents
from kinrank.kin import Describer
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import PairedComparison, compare_paired, holm
from kinrank.rankers._local.choose import MEASURE
from kinrank.study.peers import SHAPES, LightGBMBag, LightGBMPeer
from reproduction.resampled import compare_resampled

Split = tuple[QuerySet, QuerySet, QuerySet]
Job = tuple[str, int, int, str]
"""Data set, repeat, fold, method."""

METHODS = (*LIBRARIES, "bag", "described", "single", "without", "untuned", "kin")
MEMBERS = 4
MOST_TREES = 300
RATE = 0.05
REPEATS, FOLDS = 10, 5
RESULTS = Path(__file__).parent / "results" / "kin_quality"


@dataclass(frozen=True)
class DataSet:
    """Judged queries, how they are split, and what is required of KinRanker on them.

    Attributes
    ----------
    splits : callable
        Returns the (train, validation, test) splits of a repeat.
    repeats, folds : int
        Number of repeats, and of splits in each.
    settings : dict
        Settings of KinRanker.
    required : dict
        Lower limit of the gain over the best peer ("gain") and over the bag ("bag"), and upper limit of their p-values
        after Holm ("p").
    peers : tuple of str
        The methods of which the best is KinRanker's rival.
    """

    splits: Callable[[int], list[Split]]
    repeats: int = 1
    folds: int = FOLDS
    settings: dict[str, Any] = field(default_factory=dict)
    required: dict[str, float] = field(default_factory=dict)
    peers: tuple[str, ...] = tuple(LIBRARIES)

    def methods(self, which: str) -> tuple[str, ...]:
        """Return all methods, or those that the required gains need."""
        return METHODS if which == "all" else (*self.peers, "bag", "kin")


def folds_of(queries: QuerySet, fold: np.ndarray, n_folds: int = FOLDS) -> list[Split]:
    """Test on each fold, validate on the next, and train on the others."""
    return [
        (
            queries[(fold != each) & (fold != (each + 1) % n_folds)],
            queries[fold == (each + 1) % n_folds],
            queries[fold == each],
        )
        for each in range(n_folds)
    ]


def _msrd() -> QuerySet:
    return QuerySet.concat(list(msrd().values()))


def _fixed(_: int) -> list[Split]:
    parts = msrd()
    return [(parts["train"], parts["vali"], parts["test"])]


def _tenth(_: int) -> list[Split]:
    train, vali, test = _fixed(0)[0]
    few = (next(part for _, part in fold_queries(each, 10, group="movie")) for each in (train, vali))
    return [(*few, test)]


def by_movie(seed: int) -> list[Split]:
    """Return MSRD in five folds by movie."""
    return folds_of(_msrd(), fold_of_query(_msrd(), FOLDS, group="movie", seed=seed))


def _one_intent(_: int) -> list[Split]:
    queries = make_intents(1_000, 1_000, n_features=46, n_intents=3, spread=0.0, seed=1)
    return [(queries[:800], queries[800:1_000], queries[1_000:])]


def _small(seed: int) -> list[Split]:
    queries = make_intents(90, 0, n_docs=10, n_features=6, spread=1.0)
    return folds_of(queries, fold_of_query(queries, 3, seed=seed), 3)


def _random(read: Callable[[], QuerySet]) -> Callable[[int], list[Split]]:
    return lambda seed: folds_of(read(), fold_of_query(read(), FOLDS, seed=seed))


def _letor(name: str) -> QuerySet:
    return QuerySet.concat([letor_part(name, part) for part in range(1, 6)])


MOVIES: dict[str, Any] = {"group_column": "movie", "settings": {"reference": "bm25_all"}}
BM25: dict[str, Any] = {"settings": {"reference": 24}}  # BM25 of the whole document
DATA_SETS = {
    "msrd": DataSet(_fixed, folds=1, settings=MOVIES),
    "msrd-folds": DataSet(by_movie, settings=MOVIES, required={"gain": 0.005, "bag": 0.004, "p": 1e-4}),
    "msrd-tenth": DataSet(_tenth, folds=1, settings=MOVIES, required={"gain": 0.004, "p": 0.01}),
    "MQ2007": DataSet(lambda _: list(letor_folds("MQ2007")), settings=BM25, required={"bag": 0.0, "p": 0.05}),
    "mwmbl": DataSet(_random(lambda: judged_text("mwmbl")[0]), REPEATS, required={"gain": 0.013, "p": 0.05}),
    "MQ2008": DataSet(_random(lambda: _letor("MQ2008")), REPEATS, settings=BM25, required={"gain": -0.002}),
    "OHSUMED": DataSet(_random(lambda: _letor("OHSUMED")), REPEATS, required={"gain": -0.002}),
    "icecat": DataSet(_random(lambda: judged_text("icecat")[0]), REPEATS, required={"gain": -0.002}),
    "one-intent": DataSet(_one_intent, folds=1, required={"gain": -0.002}, peers=("single",)),
    "small": DataSet(_small, 2, 3),
}
OPTIONS = {
    "data-set": ("all", *DATA_SETS),
    "folds": ("all", *map(str, range(FOLDS))),
    "repeats": ("all", *map(str, range(REPEATS)), "none"),
    "methods": ("all", "required"),
    "workers": ("2", "1"),
}


def run(
    data_set: str = "all", folds: str = "all", repeats: str = "all", methods: str = "all", workers: str = "2"
) -> dict[str, object]:
    """Measure what is missing of the chosen parts, and report on every collection with a complete repeat."""
    names = [name for name in DATA_SETS if name != "small"] if data_set == "all" else [data_set]
    os.environ["OMP_NUM_THREADS"] = "1"  # one process per core: more OpenMP threads would compete
    chosen = [
        job
        for name in names
        for job in missing(name, DATA_SETS[name].methods(methods))
        if repeats in ("all", str(job[1])) and folds in ("all", str(job[2]))
    ]
    with ProcessPoolExecutor(int(workers)) as pool:
        for line in pool.map(measure, chosen):
            log_progress(line)
    complete = {name: complete_repeats(name, DATA_SETS[name].methods("required")) for name in names}
    rows = {name: verdict(name, kept) for name, kept in complete.items() if kept}
    family = [row[f"against {rival}"] for row in rows.values() for rival in ("best peer", "bag")]
    for tested, p in zip(family, holm([tested["p"] for tested in family]), strict=True):
        tested["p, Holm"] = float(f"{p:.2g}")
    for name, row in rows.items():
        row["holds"] = holds(DATA_SETS[name].required, row)
    waiting = {name: len(missing(name, DATA_SETS[name].methods(methods))) for name in names}
    left = {name: parts for name, parts in waiting.items() if parts}
    return {"NDCG@10": rows, "tests in the family": len(family), "parts still to be measured": left}


def missing(name: str, methods: Sequence[str]) -> list[Job]:
    """Return the parts of a data set that are not measured yet."""
    data = DATA_SETS[name]
    parts = product([name], range(data.repeats), range(data.folds), methods)
    return [job for job in parts if not result_file(job).exists()]


def complete_repeats(name: str, methods: Sequence[str]) -> list[int]:
    """Return the repeats of a data set in which these methods are measured."""
    incomplete = {repeat for _, repeat, _, _ in missing(name, methods)}
    return [repeat for repeat in range(DATA_SETS[name].repeats) if repeat not in incomplete]


def result_file(job: Job) -> Path:
    """Return where the values of a part are kept; the name changes with the code that it depends on."""
    name, repeat, fold, method = job
    return RESULTS / name / f"{repeat}-{fold}-{method}-{code_of(method)}.npz"


@cache
def code_of(method: str) -> str:
    """Return a hash of the settings and of the modules that a method depends on."""
    package = Path(kinrank.__file__).parent
    folders = {"described": "kin study/peers.py", "single": "learn"}
    folders |= dict.fromkeys(("without", "untuned", "kin"), "rankers learn kin memory")
    named = folders.get(method, "study/peers.py").split()
    files = [file for part in named for file in sorted((package / part).rglob("*.py")) or [package / part]]
    digest = hashlib.sha256(repr((SHAPES, MEMBERS, MOST_TREES, RATE)).encode())
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:8]


@cache
def splits(name: str, repeat: int) -> list[Split]:
    """Return the (train, validation, test) splits of a repeat."""
    return DATA_SETS[name].splits(repeat)


def measure(job: Job) -> str:
    """Measure a part, keep the values of its test queries, and return a line about it."""
    name, repeat, fold, method = job
    train, vali, test = splits(name, repeat)[fold]
    scores, note = score(method, train, vali, test, DATA_SETS[name].settings)
    values = MEASURE.per_query(scores, test.grades, test.offsets)
    file = result_file(job)
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.npz")
    np.savez(partial, values=values, qid=test.qid.astype(np.str_), note=note)
    partial.rename(file)
    return f"{name:11} {repeat} {fold} {method:9} {values.mean():.4f}  {note}"


def score(
    method: str, train: QuerySet, vali: QuerySet, test: QuerySet, settings: dict[str, Any]
) -> tuple[np.ndarray, str]:
    """Return the scores of the test queries, and the chosen settings."""
    both = QuerySet.concat([train, vali])
    if method == "single":
        return SingleRanker(missing="zero").fit(both).predict(test), ""
    if method == "untuned":
        ranker = KinRanker(**settings).fit(both)
        return ranker.predict(test), f"{ranker.n_trees_} trees, k={ranker.n_neighbors_}"
    if method in ("kin", "without"):
        own = {**with_members(settings), "local": method == "kin"}
        ranker = max(
            (KinRanker(trees=tree_settings(*shape), **own).fit(both) for shape in SHAPES),
            key=lambda each: each.record_["blend"],
        )
        shares = ", ".join(f"{part} {share:.1f}" for part, share in ranker.shares_.items())
        leaves = ranker.trees.n_leaves
        return ranker.predict(test), f"{leaves} leaves, {ranker.n_trees_} trees, k={ranker.n_neighbors_}; {shares}"
    if method == "described":
        (train, vali, test), both = _described(train, vali, test, settings)
    peer = LIBRARIES.get(method, LightGBMPeer)(MOST_TREES, learning_rate=RATE)
    if method == "bag":
        bag = LightGBMBag(MEMBERS, peer=peer).choose(train, vali).grow(both)
        return bag.predict(test), f"{bag.peer_.shape_[0]} leaves, {bag.n_trees_} trees"
    tuned = peer.fit(train, validation=vali).grow(both)
    return tuned.predict(test), f"{tuned.shape_[0]} leaves, {tuned.n_trees_} trees"


def with_members(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters of KinRanker with the number of members of all methods."""
    return params | {"settings": params.get("settings", {}) | {"n_members": MEMBERS}}


def _described(train: QuerySet, vali: QuerySet, test: QuerySet, settings: dict[str, Any]) -> tuple[Split, QuerySet]:
    """Add KinRanker's description of the query to the features of all queries."""
    blocks = "summaries+text" if VECTORS in train.query_columns else "summaries"
    both = QuerySet.concat([train, vali])
    describer = Describer(blocks, reference=settings.get("settings", {}).get("reference"), n_components=46).fit(both)

    def widened(queries: QuerySet) -> QuerySet:
        points = np.repeat(describer.transform(queries), queries.sizes, axis=0)
        return queries.replace(X=np.hstack([queries.X, points]).astype(np.float32), feature_names=())

    return (widened(train), widened(vali), widened(test)), widened(both)


def tree_settings(leaves: int, least: int) -> LambdaMART:
    """Return the settings of KinRanker's trees with a shape."""
    return LambdaMART(MOST_TREES, leaves, RATE, least, params={"feature_fraction": 0.5}, n_threads=1)


@dataclass(frozen=True)
class Values:
    """NDCG@10 of every query in every repeat, the fold in which it was tested, and its movie if it has one."""

    values: np.ndarray
    fold: np.ndarray
    movie: np.ndarray | None

    @classmethod
    def read(cls, name: str, method: str, repeats: Sequence[int]) -> Values:
        """Read the parts of a method, with queries in the order of their ids."""
        values, folds = [], []
        for repeat in repeats:
            parts = [np.load(result_file((name, repeat, fold, method))) for fold in range(DATA_SETS[name].folds)]
            qid = np.concatenate([part["qid"] for part in parts])
            order = np.argsort(qid, kind="stable")
            values.append(np.concatenate([part["values"] for part in parts])[order])
            folds.append(np.repeat(np.arange(len(parts)), [len(part["qid"]) for part in parts])[order])
        movie = movie_of(qid[order]) if DATA_SETS[name].settings is MOVIES else None
        return cls(np.array(values), np.array(folds), movie)

    def compared_with(self, other: Values) -> PairedComparison:
        """Test the difference: corrected for repeats if there are any, and by movie if there are movies."""
        if len(self.values) > 1:
            return compare_resampled(self.values, other.values, self.fold, groups=self.movie)
        return compare_paired(self.values[0], other.values[0], groups=self.movie)


def verdict(name: str, repeats: Sequence[int]) -> dict[str, object]:
    """Return the means of a collection, and KinRanker's difference from the best peer, the bag and its own parts."""
    measured = [method for method in METHODS if set(repeats) <= set(complete_repeats(name, [method]))]
    values = {method: Values.read(name, method, repeats) for method in measured}
    means = {method: float(each.values.mean()) for method, each in values.items()}
    best = max(DATA_SETS[name].peers, key=means.__getitem__)
    rivals = {"best peer": best, **{method: method for method in ("bag", "described", "without", "untuned")}}
    return {
        "queries": values["kin"].values.shape[1],
        "repeats": len(values["kin"].values),
        **{method: round(mean, 4) for method, mean in means.items()},
        "best peer": best,
        **{
            f"against {label}": difference(values["kin"].compared_with(values[rival]))
            for label, rival in rivals.items()
            if rival in values
        },
    }


def difference(paired: PairedComparison) -> dict[str, object]:
    """Return the mean difference, its 95% interval, and p."""
    low, high = (round(end, 4) for end in paired.interval)
    return {
        "gain": round(paired.mean_difference, 4),
        "low": low,
        "high": high,
        "p": float(f"{paired.p:.2g}"),
        "test": paired.test,
    }


def holds(required: dict[str, float], row: dict[str, object]) -> bool:
    """Return whether the gains reach what is required."""
    limits = {"best peer": required.get("gain"), "bag": required.get("bag")}
    return all(
        row[f"against {rival}"]["gain"] >= limit and row[f"against {rival}"]["p, Holm"] < required.get("p", 2.0)
        for rival, limit in limits.items()
        if limit is not None
    )
