"""KinRanker ranks faster than LightGBM's predict with as many trees; its training compared with a tuned LightGBM.

Ranking: KinRanker (k = 400, 10,000 judged queries) compared with one LightGBM on the raw features that has as many
trees as all members of KinRanker together, of the same shape. Measured on generated queries with 100 candidates and 46
features, and on MSRD with 24 candidates and 20 features. Trees are fitted on 2,000 queries, the other judged queries
are added, and the model is loaded from its folder, as a service does. Training: KinRanker with default settings on
MSRD's training queries, compared with a tuned LightGBM (three shapes with early stopping on a part of the queries, and
a fit on all of them) and with one LightGBM that has as many trees as one member. Demo: the KinRanker and the tuned
LightGBM of ``kinrank demo``, which have learned from the same 1,800 queries, on its search's hits of 200 others.
Interleaved runs, medians, one thread. Stages: CPU seconds of each stage of a fit on 1,500 judged queries of the demo,
with what people chose as evidence, by letters and with vectors of MiniLM (encoding apart), next to one tuned LightGBM.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import tempfile
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

from benchmarks import memory_meaning as meaning
from benchmarks.common import interleaved, medians, msrd
from kinrank import KinRanker, QuerySet, load
from kinrank.data.texts import TEXT, VECTORS
from kinrank.datasets import make_intents
from kinrank.demo._search import MovieSearch, data_file, load_demo_judgments, load_demo_movies
from kinrank.demo.samples import judged_hits
from kinrank.learn.lambdamart import LambdaMART
from kinrank.memory.evidence import Evidence
from kinrank.study.peers import LightGBMPeer

OPTIONS = {"part": ("all", "ranking", "training", "demo", "stages"), "repeats": ("3", "1")}
SHAPE = {"n_leaves": 15, "learning_rate": 0.05, "min_rows_in_leaf": 50, "n_threads": 1}
TREES = 300
FITTED, JUDGED = 2_000, 10_000
STAGED = 1_500
STAGES = {
    "all": ("kin/ranker.py", "_fit"),
    "parts of memory": ("kin/_parts.py", "choose_memory"),
    "columns of training": ("kin/_parts.py", "of_training"),
    "local scores": ("kin/_trees.py", "_make_table"),
    "weights per query, with local scores": ("kin/_parts.py", "weights_that_pay"),
    "the bag": ("kin/_trees.py", "run"),
    "what people chose": ("kin/_chosen.py", "of"),
    "LightGBM, in all stages": ("lightgbm/engine.py", "train"),
}
"""The file and the function of each stage; some hold others."""
SETTINGS = {"group_column": "movie", "settings": {"reference": "bm25_all"}}


def trees() -> LambdaMART:
    """Return KinRanker's default trees, with one thread."""
    return LambdaMART(n_trees=TREES, params={"feature_fraction": 0.5}, **SHAPE)


def run(part: str, repeats: str) -> dict[str, object]:
    """Return the times and ratios."""
    figures: dict[str, object] = {}
    if part in ("all", "demo"):
        figures["rank a query of the demo"] = demo()
    if part in ("all", "stages"):
        figures["CPU seconds of a fit"] = stages()
    if part in ("demo", "stages"):
        return figures
    movies = msrd()
    if part != "training":
        queries = make_intents(JUDGED, 200, n_docs=100, n_features=46, seed=0)
        figures["rank a query of 100 candidates, 46 features"] = ranking(queries[:JUDGED], queries[JUDGED:], {})
        figures["rank a query of MSRD"] = ranking(movies["train"][:JUDGED], movies["test"][:200], SETTINGS)
    if part != "ranking":
        figures["train"] = training(movies["train"], int(repeats))
    return figures


def ranking(train: QuerySet, test: QuerySet, settings: dict[str, object], repeats: int = 200) -> dict[str, float]:
    """Return the milliseconds to rank one query, and the ratio."""
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        KinRanker(400, trees=trees(), **settings).fit(train[:FITTED]).add(train[FITTED:]).save(model)
        kin = load(model)
    assert isinstance(kin, KinRanker)
    total = sum(model.n_trees_ for model in kin.members_)
    booster = LambdaMART(n_trees=total, **SHAPE).fit(train[: FITTED // 4]).booster_
    queries = iter([query for query in test for _ in range(2)] * (repeats // len(test) + 2))
    seconds = medians(
        interleaved(
            {
                "kin": lambda: kin.predict(next(queries)),
                "lightgbm": lambda: booster.predict(next(queries).X, num_threads=1),
            },
            repeats,
            warm=5,
        )
    )
    return {
        "trees": total,
        "KinRanker ms": round(seconds["kin"] * 1e3, 3),
        "LightGBM ms": round(seconds["lightgbm"] * 1e3, 3),
        "ratio": round(seconds["kin"] / seconds["lightgbm"], 2),
    }


def demo(repeats: int = 200) -> dict[str, float]:
    """Return the milliseconds to rank one query with the two models of the demo."""
    kin, tuned = load(data_file("kinrank")), load(data_file("lightgbm"))
    others = [judged for judged in load_demo_judgments() if not judged.learned][:repeats]
    test = judged_hits(MovieSearch(load_demo_movies()), others)
    queries = iter([query for query in test for _ in range(2)] * 2)
    rankers = {"kin": lambda: kin.predict(next(queries)), "tuned": lambda: tuned.predict(next(queries))}
    seconds = medians(interleaved(rankers, repeats, warm=5))
    return {
        "candidates": round(test.n_rows / len(test), 1),
        "KinRanker ms": round(seconds["kin"] * 1e3, 3),
        "tuned LightGBM ms": round(seconds["tuned"] * 1e3, 3),
        "ratio": round(seconds["kin"] / seconds["tuned"], 1),
    }


def stages() -> dict[str, dict[str, float]]:
    """Return the CPU seconds of each stage of a fit, by letters and with vectors, and of one tuned LightGBM."""
    learned = [judged for judged in load_demo_judgments() if judged.learned][:STAGED]
    train = judged_hits(MovieSearch(load_demo_movies()), learned)
    texts = train.query_columns[TEXT]
    looked = np.full(train.n_rows, 20.0)
    evidence = Evidence.from_cells(
        texts[train.query_of_row],
        train.doc_id,
        looked,
        np.where(train.grades > 0, 8.0, 1.0),
        np.arange(train.n_rows) % 30,
    )
    vectors = meaning.encoded("demo-queries", "MiniLM", texts.tolist())
    with_vectors = train.replace(query_columns={**train.query_columns, VECTORS: vectors})
    KinRanker(evidence=evidence).fit(with_vectors[:200])  # compile
    start = time.process_time()
    LightGBMPeer().fit(train)
    found: dict[str, dict[str, float]] = {"tuned LightGBM": {"all": round(time.process_time() - start, 1)}}
    for name, queries in (("letters", train), ("vectors", with_vectors)):
        profile = cProfile.Profile(time.process_time)
        profile.runcall(KinRanker(evidence=evidence).fit, queries)
        seconds = {
            ("/".join(Path(file).parts[-2:]), function): calls[3]
            for (file, _, function), calls in pstats.Stats(profile).stats.items()  # type: ignore[attr-defined]
        }
        found[name] = {stage: round(seconds.get(place, 0.0), 1) for stage, place in STAGES.items()}
    return found


def training(train: QuerySet, repeats: int) -> dict[str, float]:
    """Return the seconds to train, and the ratio."""
    seconds = medians(
        interleaved(
            {
                "kin": lambda: KinRanker(trees=trees(), **SETTINGS).fit(train),
                "tuned": lambda: LightGBMPeer(group_column="movie").fit(train),
                "lightgbm": lambda: LambdaMART(n_trees=TREES, **SHAPE).fit(train),
            },
            repeats,
            warm=0,
        )
    )
    return {
        "KinRanker s": round(seconds["kin"], 1),
        "tuned LightGBM s": round(seconds["tuned"], 1),
        "LightGBM s": round(seconds["lightgbm"], 1),
        "ratio to tuned LightGBM": round(seconds["kin"] / seconds["tuned"], 2),
        "ratio to LightGBM": round(seconds["kin"] / seconds["lightgbm"], 2),
    }
