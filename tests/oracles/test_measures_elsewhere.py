"""Measures against ir-measures (trec_eval, gdeval), scikit-learn and LightGBM, where conventions coincide."""

from __future__ import annotations

from dataclasses import dataclass

import ir_measures
import lightgbm
import numpy as np
import pytest
from sklearn.metrics import dcg_score, ndcg_score

from kinrank.measure import AP, DCG, ERR, NDCG, RR, Measure, P


@dataclass
class Judged:
    scores: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    doc_id: np.ndarray

    def __iter__(self):
        for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True):
            yield self.scores[a:b], self.y[a:b], self.doc_id[a:b]

    def size(self, query: int) -> int:
        return int(self.offsets[query + 1] - self.offsets[query])

    def per_query(self, measure: Measure) -> np.ndarray:
        return measure.per_query(self.scores, self.y, self.offsets, self.doc_id)


@pytest.fixture(scope="module")
def judged() -> Judged:
    """Return 3,000 ragged lists with many ties, single documents and queries without a relevant one."""
    rng = np.random.default_rng(2008)
    sizes = rng.integers(1, 25, 3000)
    sizes[::10] = 1
    n = int(sizes.sum())
    # Scores are sums of powers of two because trec_eval keeps scores in single precision.
    scores = rng.integers(-12, 12, n) / 8
    y = rng.choice(5, n, p=[0.6, 0.15, 0.1, 0.1, 0.05])
    y[np.repeat(rng.random(len(sizes)) < 0.1, sizes)] = 0
    docs = np.array([f"doc{i}" for i in rng.permutation(n)])
    return Judged(scores, y, np.cumsum([0, *sizes]), docs)


def trec(judged: Judged, provider, measures: dict[Measure, object]) -> dict[Measure, np.ndarray]:
    qrels, run = [], []
    for query, (scores, y, docs) in enumerate(judged):
        for score, grade, doc in zip(scores.tolist(), y.tolist(), docs.tolist(), strict=True):
            qrels.append(ir_measures.Qrel(str(query), doc, grade))
            run.append(ir_measures.ScoredDoc(str(query), doc, score))
    values = {theirs: np.zeros(len(judged.offsets) - 1) for theirs in measures.values()}
    for metric in provider.iter_calc(list(values), qrels, run):
        values[metric.measure][int(metric.query_id)] = metric.value
    return {ours: values[theirs] for ours, theirs in measures.items()}


def test_measures_match_trec_eval(judged: Judged) -> None:
    theirs = trec(
        judged,
        ir_measures.pytrec_eval,
        {
            NDCG(gain="linear", ties="doc_id"): ir_measures.nDCG,
            NDCG(gain="linear", ties="doc_id") @ 10: ir_measures.nDCG @ 10,
            NDCG(gain="linear", ties="doc_id") @ 1: ir_measures.nDCG @ 1,
            AP(ties="doc_id"): ir_measures.AP,
            AP(ties="doc_id") @ 5: ir_measures.AP @ 5,
            AP(ties="doc_id", relevant_from=2): ir_measures.AP(rel=2),
            P(ties="doc_id") @ 5: ir_measures.P @ 5,
            P(ties="doc_id", relevant_from=3) @ 10: ir_measures.P(rel=3) @ 10,
            RR(ties="doc_id"): ir_measures.RR,
            RR(ties="doc_id", relevant_from=2): ir_measures.RR(rel=2),
        },
    )
    for measure, expected in theirs.items():
        np.testing.assert_allclose(judged.per_query(measure), expected, rtol=0, atol=1e-9, err_msg=repr(measure))


def test_measures_match_gdeval(judged: Judged) -> None:
    ours = {
        NDCG(ties="doc_id") @ 10: ir_measures.nDCG(dcg="exp-log2") @ 10,
        ERR(ties="doc_id", max_grade=4) @ 10: ir_measures.ERR @ 10,
        ERR(ties="doc_id", max_grade=4) @ 3: ir_measures.ERR @ 3,
    }
    for measure, expected in trec(judged, ir_measures.gdeval, ours).items():
        # gdeval prints five digits
        np.testing.assert_allclose(judged.per_query(measure), expected, rtol=0, atol=5.001e-6, err_msg=repr(measure))


@pytest.mark.parametrize("k", [None, 1, 3, 10])
@pytest.mark.parametrize(("gain", "transform"), [("linear", lambda y: y), ("exp2", lambda y: 2.0**y - 1)])
def test_measures_match_scikit_learn(judged: Judged, k: int | None, gain: str, transform) -> None:
    # A different quarter of the lists for each k: scikit-learn takes a millisecond per list. It rejects lists of one.
    quarter = [i for i in range({None: 0, 1: 1, 3: 2, 10: 3}[k], len(judged.offsets) - 1, 4) if judged.size(i) > 1]
    lists = list(judged)
    for ours, theirs in ((NDCG, ndcg_score), (DCG, dcg_score)):
        values = judged.per_query(ours(k=k, gain=gain, ties="average"))[quarter]
        expected = [theirs([transform(y)], [scores], k=k) for scores, y, _ in (lists[i] for i in quarter)]
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-9)


def test_ndcg_matches_lightgbm(judged: Judged) -> None:
    # The scores are passed as init_score, and no tree is grown.
    threads = {"verbosity": -1, "num_threads": 2}
    groups = np.diff(judged.offsets)
    data = lightgbm.Dataset(
        np.zeros((len(judged.y), 1)), judged.y, group=groups, init_score=judged.scores, params=threads
    )
    booster = lightgbm.Booster({"objective": "none", "metric": "ndcg", "eval_at": [1, 5, 10]} | threads, data)
    for (_, name, theirs, _), k in zip(booster.eval_train(), (1, 5, 10), strict=True):
        assert name == f"ndcg@{k}"
        ours = (NDCG(no_relevant=1) @ k).mean(judged.scores, judged.y, judged.offsets)
        assert ours == pytest.approx(theirs, abs=1e-9)
