from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from kinrank import CellRanker, KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.datasets import make_two_camps
from kinrank.errors import ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG
from kinrank.rankers.capabilities import Capabilities
from kinrank.study.comparison import compare
from kinrank.study.entrants import evaluate_ranker, fit_and_evaluate
from kinrank.study.report import STEPS, collect, words
from kinrank.study.report.context import context_of
from kinrank.study.report.names import query_names
from kinrank.study.report.neighbor_analysis import MOST_SHOWN, neighbor_counts, shown_queries

MEASURE = NDCG @ 10


def two_camps(ranker, *, n_test: int = 40):
    """Single and another ranker where the right answer is known: half of the queries win, the others tie."""
    camps = make_two_camps(n_queries=80 + n_test, seed=0)
    train, test = camps[:80], camps[80:]
    rankers = {"one": SingleRanker("rankrls"), "own": ranker}
    return train, compare(
        test,
        [evaluate_ranker(name, each.fit(train), test, [MEASURE]) for name, each in rankers.items()],
        n_resamples=99,
    )


def test_two_camps_have_two_kinds_that_weigh_the_value_against_each_other():
    train, comparison = two_camps(KnnRanker(10))
    report = collect(comparison, judged=train)
    kinship = report.kinship
    assert kinship is not None
    assert kinship.weights is not None
    camp = comparison.queries.X[comparison.queries.offsets[:-1], 1]
    kinds = kinship.weights.kinds
    assert {frozenset(np.unique(camp[kind.members])) for kind in kinds} == {frozenset([-1.0]), frozenset([1.0])}
    assert sorted(np.sign(kind.shares[0]) for kind in kinds) == [-1, 1]
    assert report.gains.min() >= 0
    assert report.leak_check is not None
    assert (report.leak_check.seen, report.leak_check.unchecked) == (0, ())
    # A query's kin are of its camp.
    judged_camp = dict(zip(train.qid.astype(str).tolist(), train.X[train.offsets[:-1], 1].tolist(), strict=True))
    for query, names in zip(kinship.shown.tolist(), kinship.kin, strict=True):
        assert {judged_camp[name] for name in names} == {camp[query]}


def test_what_k_does_is_known_at_both_ends():
    _, comparison = two_camps(KnnRanker(10))
    kinship = collect(comparison).kinship
    assert kinship is not None
    assert kinship.curve is not None
    gains = kinship.curve.gains
    assert list(gains) == [10, 25, 50, 80]
    assert gains[10].mean_difference == pytest.approx(
        comparison["own"].evaluation[MEASURE] - comparison["one"].evaluation[MEASURE]
    )
    assert not kinship.curve.validation
    assert kinship.ratios is not None
    for ratios in kinship.ratios.by_mode.values():
        assert ratios[80] == 0
    first, second = kinship.ratios.by_mode["offline-1"], kinship.ratios.by_mode["offline-2"]
    assert all(first[k] <= second[k] for k in first)


@pytest.mark.parametrize(
    ("make", "all_are_one"),
    [
        (KnnRanker, True),
        (partial(KnnRanker, prior="global"), True),
        (partial(CellRanker, n_cells=8), True),
        (partial(KnnRanker, neighbor_weights="gaussian"), False),
    ],
    ids=["uniform", "prior", "cells", "gaussian"],
)
def test_curve_compares_every_k_with_the_global_model(make, all_are_one: bool):
    train, comparison = two_camps(make(10))
    kinship = collect(comparison).kinship
    assert kinship is not None
    assert kinship.curve is not None
    single = comparison["one"].evaluation[MEASURE]
    for k, gain in kinship.curve.gains.items():
        fitted = make(k).fit(train)
        assert gain.mean_difference == pytest.approx(fitted.score(comparison.queries) - single), k
    # All neighbors with equal weights give the global model; with distance weights they do not.
    assert (abs(kinship.curve.gains[80].mean_difference) < 1e-9) == all_are_one


def test_the_part_of_kin_that_learns_from_neighbors_is_held_against_one_model():
    trees = LambdaMART(5, min_rows_in_leaf=5, n_threads=1)
    report = collect(two_camps(KinRanker(10, n_members=2, trees=trees))[1])
    assert report.kinship is not None
    assert report.kinship.curve is not None
    assert report.kinship.curve.gains[80].mean_difference > 0.3
    note = context_of(report)["curve"]["note"]
    assert "The line at zero is one model for all queries, learned from all 80 judged ones." in note


def test_cells_are_told_in_queries():
    train, comparison = two_camps(CellRanker(400, n_cells=8))
    named = train.replace(query_columns={"text": np.array([f"camp of {qid}" for qid in train.qid])})
    kinship = collect(comparison, judged=named).kinship
    assert kinship is not None
    assert kinship.curve is not None
    assert (kinship.judged, kinship.n_neighbors) == (80, 80)
    assert all(name.startswith("camp of ") for names in kinship.kin for name in names)
    assert list(kinship.curve.gains) == [25, 50, 80]


def test_k_is_tried_on_validation_queries_where_there_are_some():
    train, comparison = two_camps(KnnRanker(10))
    kinship = collect(comparison, validation=train[:30]).kinship
    assert kinship is not None
    assert kinship.curve is not None
    assert (kinship.curve.queries, kinship.curve.validation) == (30, True)


@pytest.mark.parametrize(
    ("ranker", "missing"),
    [
        (KnnRanker(radius=0.5), {"curve", "ratios"}),
        (KnnRanker(mode="offline-2"), {"curve"}),
        (CellRanker(20, n_cells=8), {"ratios"}),
        (KnnRanker(20, learner="lambdamart"), {"curve", "weights"}),
    ],
    ids=["radius", "offline", "cells", "trees"],
)
def test_parts_that_a_ranker_does_not_support_are_none(ranker, missing):
    _, comparison = two_camps(ranker, n_test=6)
    kinship = collect(comparison).kinship
    assert kinship is not None
    assert {part for part in ("weights", "curve", "ratios") if getattr(kinship, part) is None} == missing


def test_without_neighbors_there_is_a_report_too_and_it_says_what_it_cannot():
    _, comparison = two_camps(SingleRanker("ranksvm"))
    report = collect(comparison)
    assert report.kinship is None
    assert words.headline(report).startswith(("own", "No gain"))


class Mixture(SingleRanker):
    """A ranker that learns from neighbors among other things."""

    capabilities = Capabilities(novelty=True)

    def _fit(self, queries):
        super()._fit(queries)
        self.local_ = KnnRanker(10).fit(queries)


def test_report_shows_the_neighbors_of_a_part():
    _, comparison = two_camps(Mixture("rankrls"))
    kinship = collect(comparison).kinship
    assert kinship is not None
    assert (kinship.name, kinship.whole, kinship.judged) == ("own", False, 80)


def test_a_test_query_that_was_learned_from_is_told():
    train, _ = two_camps(KnnRanker(10))
    knn, single = KnnRanker(10).fit(train), SingleRanker("rankrls").fit(train)
    asked = train[:20]
    comparison = compare(
        asked, [evaluate_ranker(n, r, asked, [MEASURE]) for n, r in (("one", single), ("own", knn))], n_resamples=99
    )
    by_ids, by_data = collect(comparison).leak_check, collect(comparison, judged=train).leak_check
    assert by_ids is not None
    assert by_data is not None
    assert by_ids.seen == by_data.seen == 20
    assert "results on them do not carry over to new queries" in words.provenance(by_ids, 20)


def test_every_entrant_is_asked_what_it_learned_from():
    train, comparison = two_camps(SingleRanker("ranksvm"))
    new = collect(comparison).leak_check
    assert new is not None
    assert (new.seen, new.near, new.unchecked) == (0, None, ())
    test = comparison.queries
    leaky = evaluate_ranker("leaky", SingleRanker("rankrls").fit(test[:15]), test, [MEASURE])
    for judged in (None, train):
        for entrants in ((leaky, comparison["own"]), (comparison["own"], leaky)):
            guard = collect(compare(test, entrants, n_resamples=99), judged=judged).leak_check
            assert guard is not None
            assert (guard.seen, guard.seen_by) == (15, ("leaky",))
            assert words.provenance(guard, 40).startswith(
                "15 of the 40 test queries were seen in training (by leaky): results on them"
            )


def test_entrants_that_do_not_know_what_they_learned_from_are_named():
    train, comparison = two_camps(CellRanker(10, n_cells=8))
    test, one = comparison.queries, comparison["one"]
    elsewhere = comparison["own"]
    here = fit_and_evaluate("own", CellRanker(10, n_cells=8), train, test, [MEASURE])
    run = replace(elsewhere, origin="run", ranker=None)
    for entrant, judged, unchecked in (
        (elsewhere, None, ("own",)),
        (elsewhere, train, ("own",)),
        (run, None, ("own",)),
        (here, None, ("own",)),
        (here, train, ()),
    ):
        guard = collect(compare(test, [one, entrant], n_resamples=99), judged=judged).leak_check
        assert guard is not None
        assert (guard.seen, guard.unchecked) == (0, unchecked)
        assert ("The training queries of own are unknown" in words.provenance(guard, 40)) == bool(unchecked)


def test_where_nobody_knows_what_was_learned_from_that_is_said():
    _, comparison = two_camps(CellRanker(10, n_cells=8))
    blank = replace(comparison, entrants=(replace(comparison["one"], ranker=None), comparison["own"]))
    assert collect(blank).leak_check is None
    assert words.provenance(None, 40).startswith("The training queries are unknown")


def test_near_duplicates_are_told_and_the_gain_without_them():
    train, comparison = two_camps(KnnRanker(10))
    # Most of the rows of the first ten test queries are in training too.
    test = comparison.queries
    planted = train[:10]
    rows = planted.X.copy()
    most = np.arange(len(rows)) % 20 < 16
    rows[most] = test.X[: len(rows)][most]
    known = QuerySet.concat([planted.replace(X=rows), train[10:]])
    guard = collect(comparison, judged=known).leak_check
    assert guard is not None
    assert (guard.seen, guard.near) == (0, 10)
    assert guard.others is not None
    gains = comparison["own"].per_query(MEASURE) - comparison["one"].per_query(MEASURE)
    assert guard.others.mean_difference == pytest.approx(gains[10:].mean())
    assert "On the 30 others the change is +0." in words.provenance(guard, 40)


def test_every_step_is_told():
    _, comparison = two_camps(KnnRanker(10), n_test=5)
    steps: list[int] = []
    collect(comparison, advance=steps.append)
    assert sum(steps) == STEPS


def test_a_report_needs_two_entrants_and_another_subject_than_the_baseline():
    _, comparison = two_camps(KnnRanker(10), n_test=5)
    with pytest.raises(ParameterError, match="two entrants"):
        collect(replace(comparison, entrants=comparison.entrants[:1]))
    with pytest.raises(ParameterError, match="is the baseline"):
        collect(comparison, "one")
    with pytest.raises(ParameterError, match="no entrant 'nobody'"):
        collect(comparison, "nobody")


def test_of_many_queries_those_that_changed_most_are_shown():
    gains = np.random.default_rng(0).normal(size=3 * MOST_SHOWN)
    shown = shown_queries(gains)
    assert len(shown) == len(set(shown.tolist())) == MOST_SHOWN
    assert {gains.argmax(), gains.argmin()} <= set(shown.tolist())
    assert np.all(np.diff(shown) > 0)


def test_k_never_exceeds_the_judged_queries():
    assert neighbor_counts(10, 400) == [10]
    assert neighbor_counts(60, 30) == [25, 30, 50, 60]


def test_names_come_from_a_column_or_the_id():
    queries = make_two_camps(n_queries=3)
    assert query_names(queries) == ("0", "1", "2")
    titled = queries.replace(query_columns={"title": np.array(["a\x07\n b", "", "c" * 500])})
    assert query_names(titled) == ("0", "1", "2")
    names = query_names(titled, "title")
    assert names[:2] == ("a b", "1")
    assert len(names[2]) == 80
    with pytest.raises(ParameterError, match=r"no query column 'text'.*'title'"):
        query_names(titled, "text")
