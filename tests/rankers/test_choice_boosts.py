"""Boosts of documents that stand for what people chose."""

from __future__ import annotations

import numpy as np
import pytest

from kinrank import ChoiceRanker, KinRanker, QuerySet, SingleRanker
from kinrank.memory.evidence import Evidence
from kinrank.rankers.choices.boosts import boosted_weights

N_QUERIES, N_DOCUMENTS = 30, 12


@pytest.fixture(scope="module")
def queries() -> QuerySet:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_QUERIES * N_DOCUMENTS, 3))
    return QuerySet.from_arrays(
        X,
        np.clip(np.round(X[:, 0] + 0.5 * rng.normal(size=len(X)) + 1), 0, 3),
        qid=np.repeat(range(N_QUERIES), N_DOCUMENTS),
        doc_id=np.tile([f"d{i}" for i in range(N_DOCUMENTS)], N_QUERIES),
        query_columns={"text": [f"wish {'x' * i}" for i in range(N_QUERIES)]},
    )


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    rng = np.random.default_rng(1)
    texts = np.repeat([f"wish {'x' * i}" for i in range(20)], 5)  # the others have none
    looks = rng.integers(1, 60, len(texts)).astype(np.float64)
    documents = np.concatenate([rng.permutation(N_DOCUMENTS)[:5] for _ in range(20)])
    return Evidence.from_cells(texts, [f"d{i}" for i in documents], looks, np.round(looks * rng.random(len(texts))))


@pytest.mark.parametrize("scale", ["none", "min_max"])
def test_weights_and_boosts_of_a_linear_ranker_rank_as_choices_do(queries: QuerySet, evidence: Evidence, scale: str):
    wrapped = SingleRanker("rankrls", scale=scale).fit(queries)
    ranker = ChoiceRanker(wrapped, evidence, prefit=True).fit(queries)
    for place, query in enumerate(queries):
        rates = ranker.predict(query)
        found = boosted_weights(ranker, query, rates)
        assert found.fidelity is None
        assert found.boosts.any() == (place < 20)
        sums = wrapped.predict(query) + found.boosts  # equal to the weighted sums but for a constant
        assert np.argsort(-sums, kind="stable").tolist() == np.argsort(-rates, kind="stable").tolist()


def test_boosts_next_to_trees_come_close(queries: QuerySet, evidence: Evidence):
    ranker = ChoiceRanker(
        KinRanker(5, trees="lambdamart(n_trees=5)", n_members=2, n_repeats=1).fit(queries), evidence, prefit=True
    ).fit(queries)
    fidelity = [boosted_weights(ranker, query, ranker.predict(query)).fidelity for query in queries[:20]]
    assert None not in fidelity
    assert np.mean(fidelity) > 0.8
