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
from kinrank.study.study import Study

MEASURE = NDCG @ 10


def two_camps(ranker, *, n_test: int = 40):
    """Compare Single with another ranker on data with a known result: half of the queries win, the others tie."""
    camps = make_two_camps(n_queries=80 + n_test, seed=0)
    train, test = camps[:80], camps[80:]
    rankers = {"one": SingleRanker("rankrls"), "own": ranker}
    return train, compare(
        test,
        [evaluate_ranker(name, each.fit(train), test, [MEASURE]) for name, each in rankers.items()],
        n_resamples=99,
    )


def test_two_camps_have_two_kinds_with_opposite_shares():
    train, comparison = two_camps(KnnRanker(10))
    report = collect(comparison, judged=train)
    analysis = report.neighbors
    assert analysis is not None
    assert analysis.shares is not None
    camp = comparison.queries.X[comparison.queries.offsets[:-1], 1]
    kinds = analysis.shares.kinds
    assert {frozenset(np.unique(camp[kind.members])) for kind in kinds} == {frozenset([-1.0]), frozenset([1.0])}
    assert sorted(np.sign(kind.shares[0]) for kind in kinds) == [-1, 1]
    assert report.gains.min() >= 0
    assert report.leak_check is not None
    assert (report.leak_check.seen, report.leak_check.unchecked) == (0, ())
    # The nearest judged queries belong to the same camp.
    judged_camp = dict(zip(train.qid.astype(str).tolist(), train.X[train.offsets[:-1], 1].tolist(), strict=True))
    for query, names in zip(analysis.shown.tolist(), analysis.nearest, strict=True):
        assert {judged_camp[name] for name in names} == {camp[query]}


def test_curve_and_ratios_at_smallest_and_largest_k():
    _, comparison = two_camps(KnnRanker(10))
    analysis = collect(comparison).neighbors
    assert analysis is not None
    assert analysis.curve is not None
    gains = analysis.curve.gains
    assert list(gains) == [10, 25, 50, 80]
    assert gains[10].mean_difference == pytest.approx(
        comparison["own"].evaluation[MEASURE] - comparison["one"].evaluation[MEASURE]
    )
    assert not analysis.curve.validation
    assert analysis.ratios is not None
    for ratios in analysis.ratios.by_mode.values():
        assert ratios[80] == 0
    first, second = analysis.ratios.by_mode["offline-1"], analysis.ratios.by_mode["offline-2"]
    assert all(first[k] <= second[k] for k in first)


@pytest.mark.parametrize(
    ("make", "all_are_one"),
    [
        (KnnRanker.as_published, True),
        (partial(KnnRanker, neighbor_weights="uniform"), True),
        (partial(CellRanker, n_cells=8, neighbor_weights="uniform"), True),
        (KnnRanker, False),
    ],
    ids=["as published", "prior", "cells", "gaussian"],
)
def test_curve_compares_every_k_with_the_global_model(make, all_are_one: bool):
    train, comparison = two_camps(make(10))
    analysis = collect(comparison).neighbors
    assert analysis is not None
    assert analysis.curve is not None
    single = comparison["one"].evaluation[MEASURE]
    for k, gain in analysis.curve.gains.items():
        fitted = make(k).fit(train)
        assert gain.mean_difference == pytest.approx(fitted.score(comparison.queries) - single), k
    # All neighbors with equal weights give the global model; with distance weights they do not.
    assert (abs(analysis.curve.gains[80].mean_difference) < 1e-9) == all_are_one


def test_curve_of_the_neighbor_part_of_kin_compares_with_the_global_model():
    trees = LambdaMART(5, min_rows_in_leaf=5, n_threads=1)
    report = collect(two_camps(KinRanker(10, n_members=2, trees=trees))[1])
    assert report.neighbors is not None
    assert report.neighbors.curve is not None
    assert report.neighbors.curve.gains[80].mean_difference > 0.3
    assert sum(report.ingredients.values()) == pytest.approx(1)
    assert words.ingredients(report).startswith("What counts in own: ")
    note = context_of(report)["curve"]["note"]
    assert "The line at zero is one linear model, fitted on all 80 judged queries." in note


def test_neighbor_part_of_kin_uses_the_texts_that_kin_encodes():
    camps = make_two_camps(n_queries=100, seed=0)
    camps = camps.replace(query_columns={"text": np.array([f"query number {qid}" for qid in camps.qid])})
    train, test = camps[:80], camps[80:]
    kin = KinRanker(10, n_members=2, trees=LambdaMART(5, min_rows_in_leaf=5, n_threads=1))
    rankers = {"one": SingleRanker("rankrls"), "kin": kin}
    entrants = [fit_and_evaluate(name, ranker, train, test, [MEASURE]) for name, ranker in rankers.items()]
    analysis = collect(compare(test, entrants, n_resamples=99), validation=train[:20]).neighbors
    assert analysis is not None
    assert (analysis.name, analysis.whole, len(analysis.nearest)) == ("kin", False, 20)


def test_cells_are_counted_in_queries():
    train, comparison = two_camps(CellRanker(400, n_cells=8))
    named = train.replace(query_columns={"text": np.array([f"camp of {qid}" for qid in train.qid])})
    analysis = collect(comparison, judged=named).neighbors
    assert analysis is not None
    assert analysis.curve is not None
    assert (analysis.n_judged, analysis.n_neighbors) == (80, 80)
    assert all(name.startswith("camp of ") for names in analysis.nearest for name in names)
    assert list(analysis.curve.gains) == [25, 50, 80]


def test_k_is_tried_on_validation_queries_if_given():
    train, comparison = two_camps(KnnRanker(10))
    analysis = collect(comparison, validation=train[:30]).neighbors
    assert analysis is not None
    assert analysis.curve is not None
    assert (analysis.curve.queries, analysis.curve.validation) == (30, True)


@pytest.mark.parametrize(
    ("ranker", "missing"),
    [
        (KnnRanker(radius=0.5), {"curve", "ratios"}),
        (KnnRanker(mode="offline-2"), {"curve"}),
        (CellRanker(20, n_cells=8), {"ratios"}),
        (KnnRanker(20, learner="lambdamart", prior="none"), {"curve", "shares"}),
    ],
    ids=["radius", "offline", "cells", "trees"],
)
def test_parts_that_a_ranker_does_not_support_are_none(ranker, missing):
    _, comparison = two_camps(ranker, n_test=6)
    analysis = collect(comparison).neighbors
    assert analysis is not None
    assert {part for part in ("shares", "curve", "ratios") if getattr(analysis, part) is None} == missing


def test_report_without_neighbors():
    _, comparison = two_camps(SingleRanker("ranksvm"))
    report = collect(comparison)
    assert report.neighbors is None
    assert words.headline(report).startswith("own ")
    assert report.answer is None


class Mixture(SingleRanker):
    """A ranker with a part that learns from neighbors."""

    capabilities = Capabilities(novelty=True)

    def _fit(self, queries):
        super()._fit(queries)
        self.local_ = KnnRanker(10).fit(queries)


def test_report_shows_the_neighbors_of_a_part():
    _, comparison = two_camps(Mixture("rankrls"))
    analysis = collect(comparison).neighbors
    assert analysis is not None
    assert (analysis.name, analysis.whole, analysis.n_judged) == ("own", False, 80)


def test_seen_test_queries_are_counted():
    train, _ = two_camps(KnnRanker(10))
    knn, single = KnnRanker(10).fit(train), SingleRanker("rankrls").fit(train)
    seen = train[:20]
    comparison = compare(
        seen, [evaluate_ranker(n, r, seen, [MEASURE]) for n, r in (("one", single), ("own", knn))], n_resamples=99
    )
    by_ids, by_data = collect(comparison).leak_check, collect(comparison, judged=train).leak_check
    assert by_ids is not None
    assert by_data is not None
    assert by_ids.seen == by_data.seen == 20
    assert "results on them do not carry over to new queries" in words.provenance(by_ids, 20)


def test_a_study_that_is_given_is_not_checked_again(monkeypatch: pytest.MonkeyPatch):
    train, comparison = two_camps(SingleRanker("rankrls"))
    study = Study.split(train, comparison.queries, measures=comparison.measures, leaks="warn")
    monkeypatch.setattr("kinrank.study.folds.find_leaks", lambda *_, **__: pytest.fail("checked again"))
    check = collect(comparison, judged=train, study=study).leak_check
    assert check is not None
    assert (check.seen, check.near) == (0, 0)


def test_training_queries_of_every_entrant_are_checked():
    train, comparison = two_camps(SingleRanker("ranksvm"))
    new = collect(comparison).leak_check
    assert new is not None
    assert (new.seen, new.near, new.unchecked) == (0, None, ())
    test = comparison.queries
    leaky = evaluate_ranker("leaky", SingleRanker("rankrls").fit(test[:15]), test, [MEASURE])
    for judged in (None, train):
        for entrants in ((leaky, comparison["own"]), (comparison["own"], leaky)):
            check = collect(compare(test, entrants, n_resamples=99), judged=judged).leak_check
            assert check is not None
            assert (check.seen, check.seen_by) == (15, ("leaky",))
            assert words.provenance(check, 40).startswith(
                "15 of the 40 test queries were seen in training (by leaky): results on them"
            )


def test_entrants_with_unknown_training_queries_are_unchecked():
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
        check = collect(compare(test, [one, entrant], n_resamples=99), judged=judged).leak_check
        assert check is not None
        assert (check.seen, check.unchecked) == (0, unchecked)
        assert ("The training queries of own are unknown" in words.provenance(check, 40)) == bool(unchecked)


def test_leak_check_is_none_if_no_training_queries_are_known():
    _, comparison = two_camps(CellRanker(10, n_cells=8))
    blank = replace(comparison, entrants=(replace(comparison["one"], ranker=None), comparison["own"]))
    assert collect(blank).leak_check is None
    assert words.provenance(None, 40).startswith("The training queries are unknown")


def test_near_duplicates_are_counted_and_the_gain_without_them():
    train, comparison = two_camps(KnnRanker(10))
    # Most rows of the first ten test queries are also in training.
    test = comparison.queries
    planted = train[:10]
    rows = planted.X.copy()
    most = np.arange(len(rows)) % 20 < 16
    rows[most] = test.X[: len(rows)][most]
    known = QuerySet.concat([planted.replace(X=rows), train[10:]])
    check = collect(comparison, judged=known).leak_check
    assert check is not None
    assert (check.seen, check.near) == (0, 10)
    assert check.others is not None
    gains = comparison["own"].per_query(MEASURE) - comparison["one"].per_query(MEASURE)
    assert check.others.mean_difference == pytest.approx(gains[10:].mean())
    assert "On the 30 others the change is +0." in words.provenance(check, 40)


def test_advance_is_called_for_every_step():
    _, comparison = two_camps(KnnRanker(10), n_test=5)
    steps: list[int] = []
    collect(comparison, advance=steps.append)
    assert sum(steps) == STEPS


def test_wrong_entrants_raise():
    _, comparison = two_camps(KnnRanker(10), n_test=5)
    with pytest.raises(ParameterError, match="pass two entrants, got 1"):
        collect(replace(comparison, entrants=comparison.entrants[:1]))
    with pytest.raises(ParameterError, match="subject 'one' is the baseline"):
        collect(comparison, "one")
    with pytest.raises(ParameterError, match="no entrant 'nobody'"):
        collect(comparison, "nobody")


def test_queries_that_changed_most_are_shown():
    gains = np.random.default_rng(0).normal(size=3 * MOST_SHOWN)
    shown = shown_queries(gains)
    assert len(shown) == len(set(shown.tolist())) == MOST_SHOWN
    assert {gains.argmax(), gains.argmin()} <= set(shown.tolist())
    assert np.all(np.diff(shown) > 0)


def test_k_is_at_most_the_number_of_judged_queries():
    assert neighbor_counts(10, 400) == [10]
    assert neighbor_counts(60, 30) == [25, 30, 50, 60]


def test_names_are_a_column_or_the_id():
    queries = make_two_camps(n_queries=3)
    assert query_names(queries) == ("0", "1", "2")
    titled = queries.replace(query_columns={"title": np.array(["a\x07\n b", "", "c" * 500])})
    assert query_names(titled) == ("0", "1", "2")
    names = query_names(titled, "title")
    assert names[:2] == ("a b", "1")
    assert len(names[2]) == 80
    with pytest.raises(ParameterError, match=r"no query column 'text'.*'title'"):
        query_names(titled, "text")
