from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kinrank import CellRanker, KinRanker, KnnRanker, QuerySet, SingleRanker
from kinrank.datasets import make_two_camps
from kinrank.errors import ParameterError
from kinrank.learn.lambdamart import LambdaMART
from kinrank.measure import NDCG
from kinrank.rankers.capabilities import Capabilities
from kinrank.study._entrants import evaluate_ranker, fit_and_evaluate
from kinrank.study.comparison import compare
from kinrank.study.report import STEPS, collect
from kinrank.study.report import _page as words
from kinrank.study.report._collect import query_names
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
    )


def test_two_camps_have_opposite_shares_and_learn_from_their_own():
    train, comparison = two_camps(KnnRanker(10))
    report = collect(comparison, judged=train)
    assert report.shares is not None
    camp = comparison.queries.X[comparison.queries.offsets[:-1], 1]
    shares = report.shares.by_query[:, 0]
    signs = {(sign, each) for sign, each in zip(np.sign(shares), camp, strict=True)}
    assert len(signs) == 2
    assert {sign for sign, _ in signs} == {-1, 1}
    assert report.gains.min() >= 0
    assert report.leak_check is not None
    assert (report.leak_check.seen, report.leak_check.unchecked) == (0, ())


def test_neighbor_part_of_kin_uses_the_texts_that_kin_encodes():
    camps = make_two_camps(n_queries=100, seed=0)
    camps = camps.replace(query_columns={"text": np.array([f"query number {qid}" for qid in camps.qid])})
    train, test = camps[:80], camps[80:]
    kin = KinRanker(10, trees=LambdaMART(5, min_rows_in_leaf=5, n_threads=1), settings={"n_members": 2})
    rankers = {"one": SingleRanker("rankrls"), "kin": kin}
    entrants = [fit_and_evaluate(name, ranker, train, test, [MEASURE]) for name, ranker in rankers.items()]
    shares = collect(compare(test, entrants)).shares
    assert shares is not None
    assert (shares.name, shares.whole, len(shares.by_query)) == ("kin", False, 20)


def test_models_that_are_not_linear_have_no_shares():
    _, comparison = two_camps(KnnRanker(20, learner="lambdamart", prior="none"), n_test=6)
    assert collect(comparison).shares is None


def test_report_without_neighbors():
    _, comparison = two_camps(SingleRanker("ranksvm"))
    report = collect(comparison)
    assert report.shares is None
    assert words.headline(report).startswith("Keep one: own has ")
    assert report.answer is None


class Mixture(SingleRanker):
    """A ranker with a part that learns from neighbors."""

    capabilities = Capabilities(novelty=True)

    def _fit(self, queries):
        super()._fit(queries)
        self.local_ = KnnRanker(10).fit(queries)


def test_report_shows_the_features_of_a_part():
    _, comparison = two_camps(Mixture("rankrls"))
    shares = collect(comparison).shares
    assert shares is not None
    assert (shares.name, shares.whole) == ("own", False)


def test_seen_test_queries_are_counted():
    train, _ = two_camps(KnnRanker(10))
    knn, single = KnnRanker(10).fit(train), SingleRanker("rankrls").fit(train)
    seen = train[:20]
    comparison = compare(seen, [evaluate_ranker(n, r, seen, [MEASURE]) for n, r in (("one", single), ("own", knn))])
    by_ids, by_data = collect(comparison).leak_check, collect(comparison, judged=train).leak_check
    assert by_ids is not None
    assert by_data is not None
    assert by_ids.seen == by_data.seen == 20
    assert "results on them do not carry over to new queries" in words.provenance(by_ids, 20)


def test_a_study_that_is_given_is_not_checked_again(monkeypatch: pytest.MonkeyPatch):
    train, comparison = two_camps(SingleRanker("rankrls"))
    study = Study.split(train, comparison.queries, measures=comparison.measures, leaks="warn")
    monkeypatch.setattr("kinrank.study._folds.find_leaks", lambda *_, **__: pytest.fail("checked again"))
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
            check = collect(compare(test, entrants), judged=judged).leak_check
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
        check = collect(compare(test, [one, entrant]), judged=judged).leak_check
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


def test_features_are_those_of_a_sample():
    _, comparison = two_camps(KnnRanker(10), n_test=400)
    shares = collect(comparison).shares
    assert shares is not None
    assert len(shares.by_query) == 200


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
