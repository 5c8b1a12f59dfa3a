"""Choices on a simulated month of traffic: learned from three weeks of clicks, asked in the fourth.

Users click on the lists of a collection's queries, in the order of BM25 over all fields with some noise. Everything is
learned from the clicks of the first three weeks: LightGBM (LambdaMART) and KinRanker from corrected clicks, the order
by each query's own clicks, and KinRanker with evidence, alone and with LightGBM as its base. *Evidence columns* is the
baseline that needs no kinrank: LightGBM with the looks, choices and rate of choices of the same query as features,
learned with those of the first two weeks from the clicks of the third, and asked with those of all three. NDCG@10 with
the true grades: the mean over queries, weighted by the lists of the fourth week, and by the impressions of the first
three weeks. ``--queries`` draws that many queries of the collection.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.clicks_rank import ENGINE, MEASURE, judged_by_clicks
from benchmarks.common import judged_text, log_progress, msrd
from kinrank import KinRanker, QuerySet
from kinrank.clicks import ClickCounts
from kinrank.clicks.choices import write_evidence
from kinrank.clicks.examination import Examination, estimate_examination
from kinrank.clicks.judgments import estimate_attractiveness, judgment_table
from kinrank.clicks.read import open_clicks
from kinrank.data.texts import TEXT
from kinrank.datasets import simulate_clicks
from kinrank.memory.evidence import Evidence
from kinrank.rankers import RANKERS

OPTIONS = {
    "collection": ["msrd", "mwmbl"],
    "user": ["position", "cascade", "trust"],
    "seed": ["1", "2", "3"],
    "around": ["both", "LightGBM", "KinRanker"],
    "model": ["swaps", "trust"],
    "queries": ["all", "700", "2500"],
}
WRAPPED = {"LightGBM": "single(learner=lambdamart)", "KinRanker": "kin"}
BINS = (0, 50, 100, 200, 500)


def week(number: int) -> pa.Scalar:
    """Return when a week starts; the first is 0."""
    return pa.scalar(1_790_000_000 + 7 * 86_400 * number, pa.timestamp("s", tz="UTC"))


class Month(NamedTuple):
    """A simulated month.

    Attributes
    ----------
    judged
        The queries with grades and weights from the clicks of three weeks.
    evidence
        Looks and choices of the three weeks.
    own
        The attractiveness of each document by the query's own clicks; NaN without any.
    impressions
        Impressions of each query in the three weeks.
    traffic
        Lists of each query in the fourth week.
    stacked
        The queries with evidence columns of two weeks, and grades and weights from the clicks of the third.
    """

    judged: QuerySet
    evidence: Evidence
    own: np.ndarray
    impressions: np.ndarray
    traffic: np.ndarray
    stacked: QuerySet


def read_clicks(log: pa.Table, model: str) -> tuple[ClickCounts, Examination, Evidence]:
    """Return the counts of a log, how its ranks are examined by a model, and its evidence in memory."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.parquet"
        pq.write_table(log, file)
        with open_clicks([file]) as opened:
            counts = opened.counts()
            examination = estimate_examination(counts, model)
            evidence = write_evidence(opened, examination, Path(folder) / "evidence")
        state = {name: values.copy() for name, values in evidence.get_state().items()}
        return counts, examination, Evidence(state, evidence.meta)


def simulated_month(queries: QuerySet, user: str, seed: int, model: str = "swaps") -> Month:
    """Return a month of clicks on judged queries, read with a model of examination; query texts are ids of queries."""
    plain = queries.replace(query_columns={})
    log = simulate_clicks(plain, queries.X[:, queries.feature_names.index(ENGINE)], n_lists=10, user=user, seed=seed)
    early = log.filter(pc.less(log["time"], week(3)))
    table, evidence = judged_log(early, model)
    before = judged_log(early.filter(pc.less(early["time"], week(2))), model)[1]
    third = judged_log(early.filter(pc.greater_equal(early["time"], week(2))), model)[0]
    names = queries.qid.astype(str)
    places = {name: place for place, name in enumerate(names.tolist())}
    firsts = log.filter(pc.and_(pc.greater_equal(log["time"], week(3)), pc.equal(log["rank"], 1)))
    assert queries.doc_id is not None
    keys = zip(names[queries.query_of_row].tolist(), queries.doc_id.astype(str).tolist(), strict=True)
    known = zip(table["qid"].to_pylist(), table["doc_id"].to_pylist(), strict=True)
    own = dict(zip(known, table["info.attractiveness"].to_pylist(), strict=True))
    return Month(
        judged_by_clicks(queries, table),
        evidence,
        np.array([own.get(key, np.nan) for key in keys]),
        counted(early["query"], places),
        counted(firsts["query"], places),
        judged_by_clicks(with_evidence(queries, before), third),
    )


def judged_log(log: pa.Table, model: str) -> tuple[pa.Table, Evidence]:
    """Return the judgments and the evidence of a log."""
    counts, examination, evidence = read_clicks(log, model)
    return judgment_table(counts, estimate_attractiveness(counts, examination)), evidence


def with_evidence(queries: QuerySet, evidence: Evidence) -> QuerySet:
    """Return queries with the looks, choices and rate of choices of the same query as features."""
    asked = queries.replace(query_columns={TEXT: queries.qid.astype(str)})
    looks, choices = evidence.totals(asked)
    columns = np.column_stack([queries.X, looks, choices, choices / (looks + 1)])
    names = (*queries.feature_names, "looks", "choices", "rate")
    return queries.replace(X=columns.astype(np.float32), feature_names=names)


def counted(texts: pa.ChunkedArray, places: dict[str, int]) -> np.ndarray:
    """Return how often each text is there."""
    numbers = np.zeros(len(places), dtype=np.int64)
    for row in pc.value_counts(texts).to_pylist():
        numbers[places[row["values"]]] = row["counts"]
    return numbers


def summarized(quality: np.ndarray, month: Month) -> dict[str, float]:
    """Return the mean over queries, weighted by traffic, and by impressions."""
    rows = {"mean": quality.mean(), "by traffic": np.average(quality, weights=month.traffic)}
    for low, high in zip(BINS, (*BINS[1:], np.inf), strict=True):
        part = (month.impressions >= low) & (month.impressions < high)
        label = f"{low} or more" if np.isinf(high) else f"{low} to {high - 1:.0f}"
        if part.any():
            rows[label] = quality[part].mean()
    return {name: round(float(value), 4) for name, value in rows.items()}


def run(
    collection: str = "msrd",
    user: str = "position",
    seed: str = "1",
    around: str = "both",
    model: str = "swaps",
    queries: str = "all",
) -> dict[str, Any]:
    """Measure all orders."""
    everything = msrd()["train"] if collection == "msrd" else judged_text("mwmbl")[0]
    if collection == "mwmbl":
        everything = everything.replace(doc_id=np.arange(everything.n_rows).astype(str))
    return measured(drawn(everything, queries, int(seed)), collection, user, int(seed), around, model)


def drawn(queries: QuerySet, number: str, seed: int) -> QuerySet:
    """Return a number of queries, drawn at random."""
    if number == "all":
        return queries
    return queries[np.sort(np.random.default_rng(seed).permutation(len(queries))[: int(number)])]


def measured(queries: QuerySet, collection: str, user: str, seed: int, around: str, model: str) -> dict[str, Any]:
    """Measure all orders on a month of some queries."""
    month = simulated_month(queries, user, seed, model)
    engine = queries.X[:, queries.feature_names.index(ENGINE)].astype(np.float64)
    unseen = -1 + 1e-6 * (engine - engine.max())  # below every attractiveness, in the engine's order
    scores = {"engine": engine, "own clicks": np.where(np.isnan(month.own), unseen, month.own)}
    stacked = RANKERS.make(WRAPPED["LightGBM"]).fit(month.stacked)
    scores["evidence columns"] = stacked.predict(with_evidence(queries, month.evidence))
    settings, sets = {}, (queries, month.judged)
    # In the log the text of a query is its id. Both collections have vectors, so that nothing else reads the text.
    asked, judged = (each.replace(query_columns={**each.query_columns, TEXT: each.qid.astype(str)}) for each in sets)
    for name, spec in WRAPPED.items():
        if around not in ("both", name):
            continue
        base = None if spec == "kin" else spec
        ranker = KinRanker(base=base, evidence=month.evidence).fit(judged)
        plain = ranker.copy()
        plain.chosen_ = None
        scores[name] = plain.predict(asked) if base is None else RANKERS.make(base).fit(judged).predict(asked)
        scores[f"choices around {name}"] = ranker.predict(asked)
        assert ranker.chosen_ is not None
        settings[name] = {
            key: None if value is None else round(value, 3) for key, value in vars(ranker.chosen_.posterior).items()
        } | {"inside": round(ranker.chosen_.inside, 3)}
        log_progress(f"{name}: {settings[name]}")
    quality = {name: MEASURE.per_query(values, queries.grades, queries.offsets) for name, values in scores.items()}
    new = month.impressions == 0
    figures = {name: summarized(values, month) for name, values in quality.items()}
    for name, row in figures.items():
        log_progress(f"{name:24} {row}")
    return {
        "collection": collection,
        "user": user,
        "model": model,
        "seed": seed,
        "queries": len(queries),
        "impressions": int(month.impressions.sum()),
        "lists of the fourth week": int(month.traffic.sum()),
        "NDCG@10": figures,
        "queries without impressions": {
            "queries": int(new.sum()),
            **{name: round(float(values[new].mean()), 4) for name, values in quality.items()},
        },
        "settings": settings,
    }
