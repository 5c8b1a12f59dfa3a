from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.common import letor_part, msrd
from kinrank import KinRanker, KnnRanker, SingleRanker
from kinrank.data.queryset import QuerySet
from kinrank.data.split import fold_queries
from kinrank.datasets import make_intents, make_two_camps
from kinrank.errors import DataError, LeakError, ParameterError
from kinrank.measure import AP, NDCG, compare_paired
from kinrank.parallel import use_threads
from kinrank.progress import on_progress
from kinrank.rankers._local.choose import choose_neighbors
from kinrank.registry import import_extra
from kinrank.study._answer import RUNGS
from kinrank.study._records import headroom_record
from kinrank.study.headroom import Headroom, scores_by_own_judgments, sweep_neighbors
from kinrank.study.headroom import headroom as study
from kinrank.study.ladder import climb, fit_rungs, missing_memory, rungs_to_fit
from kinrank.study.study import Study

LINEAR, LOCAL = RUNGS["linear"], RUNGS["local"]


def headroom(*args, **settings) -> Headroom:
    """Measure linear models only, which takes no time."""
    return study(*args, trees=False, **settings)


def test_two_camps_gain():
    camps = make_two_camps(n_queries=100, seed=0)
    found = headroom(camps)
    assert found.means[LOCAL] == found.means["oracle"] == 1.0
    assert found.means[LINEAR] < 0.8
    assert found.answer.gain.paired.losses == 0
    assert found.answer.verdict == found.answer.own_verdict == "gain"
    assert found.answer.text.startswith("a linear model per query gains +0.")
    assert found.answer.text.endswith("Trees were not measured.")


def test_one_intent_does_not_gain():
    one = make_intents(500, 0, n_docs=20, n_features=10, spread=0.0)
    found = headroom(one)
    assert found.answer.verdict == "none"
    assert "than one linear model, which is not significant" in found.answer.text
    # The oracle is far higher even here, because it is fitted to the documents it ranks.
    assert found.means["oracle"] > found.means[LINEAR] + 0.1


def test_three_intents_gain_and_the_record_has_the_values_of_the_comparison():
    found = headroom(make_intents(400, 0, n_docs=20, n_features=10, spread=1.0), measure=AP)
    local, linear = found.comparison[LOCAL], found.comparison[LINEAR]
    assert found.answer.verdict == "gain"
    assert found.answer.gain.paired == compare_paired(local.per_query(AP), linear.per_query(AP))
    assert len(found.choices) == len(found.leaks) == 5
    record = headroom_record(found)
    assert record["means"][LOCAL] == pytest.approx(local.per_query(AP).mean())
    assert (record["queries"], record["folds"], record["measure"]) == (400, 5, "AP")
    assert record["answer"]["own_models_verdict"] == "gain"
    assert record["gain_without_near_duplicates"] is None


def test_entrant_has_the_ranker_with_a_separate_test_set():
    queries = make_intents(300, 100, n_docs=15, n_features=8, spread=1.0)
    found = headroom(queries[:300], queries[300:])
    local = found.comparison[LOCAL]
    assert isinstance(local.ranker, KnnRanker)
    assert local.ranker.n_neighbors == found.choices[0].n_neighbors
    assert local.scores == pytest.approx(local.ranker.predict(queries[300:]))


def test_ladder_ends_before_trees_without_lightgbm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("kinrank.study.ladder.importlib.util.find_spec", lambda _: None)
    found = study(make_two_camps(n_queries=60, seed=0))
    assert list(found.answer.means) == ["linear", "local"]
    assert found.answer.text.endswith("Trees were not measured: they need pip install '.[lightgbm]' in a checkout.")


def sharing(queries: QuerySet) -> QuerySet:
    """Return queries with texts, and with documents that are candidates of two of them."""
    documents = np.random.default_rng(0).permutation(queries.n_rows) % (queries.n_rows // 2)
    texts = np.array([f"wish {number}" for number in range(len(queries))])
    return queries.replace(doc_id=documents, query_columns={"text": texts, "shop": np.arange(len(queries)) % 10})


def test_memory_needs_shared_documents():
    queries = sharing(make_two_camps(n_queries=60, seed=0))
    assert not missing_memory(queries)
    assert "queries have no texts" in missing_memory(queries.replace(query_columns={}))
    assert "documents have no ids" in missing_memory(queries.replace(doc_id=None))
    alone = queries.replace(doc_id=np.arange(queries.n_rows))
    assert missing_memory(alone).endswith("no document is a candidate of two queries.")
    whole = queries.replace(query_columns={**queries.query_columns, "shop": np.zeros(len(queries))})
    assert not missing_memory(queries, "shop")
    assert missing_memory(whole, "shop").endswith("no document is a candidate of queries of two groups.")
    found = Study.split(alone, folds=3)
    assert "memory" not in rungs_to_fit(found, RUNGS)


def test_memory_is_learned_with_the_shape_of_the_tuned_trees_and_keep_groups_apart():
    import_extra("lightgbm", "lightgbm")
    folds = Study.split(sharing(make_two_camps(n_queries=60, seed=0)), folds=2, group="shop")
    kin = KinRanker(group_column="shop")
    rungs = {rung: folds.pool(parts) for rung, parts in fit_rungs(kin, folds, ["trees", "memory"]).items()}
    for trees, memory in zip(rungs["trees"].parts, rungs["memory"].parts, strict=True):
        assert memory.ranker.model_.shape_ == trees.ranker.shape_
        assert memory.ranker.model_.n_trees_ == trees.ranker.n_trees_
        assert memory.ranker.group_column == "shop"
    again = fit_rungs(kin, folds, ["memory"], measured=rungs)["memory"]
    assert np.array_equal(folds.pool(again).scores, rungs["memory"].scores)
    given = {"trees": replace(rungs["trees"], origin="model"), "kin": rungs["trees"]}
    assert list(climb(kin, folds, rungs=["memory"], measured=given)) == ["trees", "kin"]  # not learned here


def test_trees_need_whole_grades_and_stop_after_enough_queries():
    import_extra("lightgbm", "lightgbm")
    camps = sharing(make_two_camps(n_queries=60, seed=0))
    engine = camps.feature_names[0]
    found = study(camps.replace(y=camps.grades + 0.5), engine=engine)
    assert list(found.answer.means) == ["engine", "linear", "local"]
    assert "they need whole grades from 0 to 30" in found.answer.text
    steps, first = [], []
    kin = KinRanker(5, settings={"n_members": 2})
    with use_threads(2), on_progress(lambda *step: steps.append(step)):
        few = study(camps, ranker=kin, folds=3, enough=20, engine=engine, details=True, on_first_answer=first.append)
    assert [list(answer.means) for answer in first] == [["linear", "local"]]
    assert steps[-1][1] == steps[-1][2]  # everything is done
    assert {stage.removesuffix(", in all") for stage, *_ in steps} >= set(RUNGS.values())
    with use_threads(1):
        alone = study(camps, ranker=kin, folds=3, enough=20, engine=engine)
    assert {**few.means, **alone.means} == few.means
    assert few.means.keys() - alone.means.keys() == {RUNGS["bag"]}
    assert list(few.answer.means) == list(RUNGS)
    assert headroom_record(few)["answer"]["memory"]["against"] == RUNGS["trees"]
    assert (len(few.choices), few.n_folds, len(few.comparison.queries), few.n_queries) == (1, 3, 20, 60)


def test_seen_queries_raise_or_are_dropped_or_kept():
    camps = make_two_camps(n_queries=60, seed=0)
    train, test = camps[:40], camps[38:]
    with pytest.raises(LeakError, match=r"2 of 22 test queries were seen in training.*--leaks drop"):
        headroom(train, test)
    assert len(headroom(train, test, leaks="drop").comparison.queries) == 20
    assert len(headroom(train, test, leaks="warn").comparison.queries) == 22
    with pytest.raises(DataError, match="no query is left to test on"):
        headroom(train, train, leaks="drop")
    with pytest.raises(ParameterError, match="leaks must be one of"):
        headroom(train, test, leaks="ignore")


def test_inner_folds_are_limited_by_the_number_of_groups():
    camps = make_two_camps(n_queries=80, seed=0)
    found = headroom(camps.replace(query_columns={"shop": np.arange(80) // 10}), group="shop", folds=2)
    assert found.answer.verdict == "gain"
    halves = camps.replace(query_columns={"shop": np.arange(80) // 40})
    with pytest.raises(
        DataError, match="cannot choose settings on folds of the training queries by shop: 40 queries in 1 group "
    ):
        headroom(halves, group="shop", folds=2)


def test_unjudged_share_of_the_top_ten():
    camps = make_two_camps(n_queries=60, n_docs=20, seed=0)
    train, test = camps[:40], camps[40:]
    assert headroom(train, test).unjudged is None
    half = test.doc_id % 2 == 0
    marked = test.replace(y=np.where(half, test.grades, np.nan).astype(np.float32))
    assert headroom(train, marked).unjudged == pytest.approx(0.5, abs=0.1)


def test_oracle_is_never_below_the_global_model():
    queries = make_intents(50, 0, n_docs=12, n_features=6, spread=1.0)
    weights = np.linspace(-1, 1, 6)
    measure = NDCG @ 10
    best = measure.per_query(scores_by_own_judgments(weights, 0.01, queries, measure), queries.grades, queries.offsets)
    base = measure.per_query(queries.X @ weights, queries.grades, queries.offsets)
    assert np.all(best >= base)


@pytest.mark.data("text/msrd")
@pytest.mark.slow
def test_msrd_gains_without_near_duplicates(data_dir: Path):
    parts = msrd()
    ranker = KinRanker(describe="summaries+text", settings={"reference": "bm25_all"})
    found = headroom(parts["train"], parts["test"], ranker=ranker, group="movie")
    assert found.answer.verdict == "gain"
    assert found.answer.gain.paired.mean_difference > 0.003
    assert found.clean is not None
    assert found.clean.mean_difference > 0.003


@pytest.mark.data("letor/MQ2007")
@pytest.mark.slow
def test_mq2007_does_not_gain(data_dir: Path):
    queries = QuerySet.concat([letor_part("MQ2007", part) for part in range(1, 6)])
    found = headroom(queries, ranker=KinRanker(settings={"reference": 24}))
    assert found.answer.verdict == "none"
    assert found.answer.gain.paired.interval[1] < 0.005


@pytest.fixture(scope="module")
def intents() -> QuerySet:
    return make_intents(160, 0, n_docs=12, n_features=6, spread=1.0)


def values_of(ranker: KnnRanker | SingleRanker, queries: QuerySet) -> np.ndarray:
    return (NDCG @ 10).per_query(ranker.predict(queries), queries.grades, queries.offsets)


def test_sweep_equals_cross_validation_of_every_setting(intents: QuerySet):
    folds = list(fold_queries(intents, 3))
    choice = sweep_neighbors(KnnRanker(), folds, NDCG @ 10, counts=(5, 20), strengths=(None, 0.1))
    for (k, strength), quality in choice.quality.items():
        prior = {"prior": "none"} if strength is None else {"prior": "global", "prior_strength": strength}
        values = [values_of(KnnRanker(k, **prior).fit(train), test) for train, test in folds]
        assert quality == pytest.approx(np.concatenate(values).mean(), abs=1e-6)
    single = [values_of(SingleRanker("rankrls").fit(train), test) for train, test in folds]
    assert choice.single == pytest.approx(np.concatenate(single).mean(), abs=1e-6)
    few = sweep_neighbors(KnnRanker(), folds, NDCG @ 10, counts=(5,), strengths=(None,), enough=40)
    subsample = folds[0][1][np.linspace(0, len(folds[0][1]) - 1, 40).astype(int)]
    assert few.quality[5, None] == pytest.approx(KnnRanker(5, prior="none").fit(folds[0][0]).score(subsample), abs=1e-6)


def test_k_must_be_possible_in_every_fold(intents: QuerySet):
    folds = [(intents[:40], intents[100:110]), (intents[:100], intents[110:])]
    choice = sweep_neighbors(KnnRanker(), folds, NDCG @ 10, counts=(5, 20, 50), strengths=(None,))
    assert {k for k, _ in choice.quality} == {5, 20}
    assert choice.n_queries == 60


def test_folds_without_values_are_ignored(intents: QuerySet):
    measure = NDCG(no_relevant="skip") @ 10
    train, test = intents[:80], intents[80:120]
    nothing_relevant = intents[120:].replace(y=np.zeros(intents[120:].n_rows))
    alone = sweep_neighbors(KnnRanker(), [(train, test)], measure, counts=(5,), strengths=(None,))
    both = sweep_neighbors(
        KnnRanker(), [(train, test), (train, nothing_relevant)], measure, counts=(5,), strengths=(None,)
    )
    assert both == alone
    with pytest.raises(DataError, match="no fold has queries with a value of"):
        sweep_neighbors(KnnRanker(), [(train, nothing_relevant)], measure)


def test_sweep_breaks_ties_by_document_id(intents: QuerySet):
    named = intents.replace(doc_id=np.arange(intents.n_rows))
    choice = choose_neighbors(KnnRanker().fit(named[:80]), named[80:], [5], measure=NDCG(ties="doc_id") @ 10)
    alone = KnnRanker(5, prior="none").fit(named[:80])
    assert choice.quality[5, None] == pytest.approx(alone.score(named[80:]), abs=1e-6)
