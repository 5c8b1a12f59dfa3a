"""Statistics: addition, subtraction, weights and solving."""

from __future__ import annotations

import numpy as np
import pytest

from kinrank import QuerySet, folder
from kinrank.checks import linear_queries
from kinrank.errors import DataError, ParameterError
from kinrank.learn.base import pair_weights
from kinrank.learn.lambdamart import LambdaMART
from kinrank.learn.rankrls import RankRLS
from kinrank.learn.ranksvm import RankSVM
from kinrank.learn.statistics import PairStatistics


def test_adding_and_subtracting_statistics_equals_refitting() -> None:
    world = linear_queries()
    each = PairStatistics.from_queries(world)
    without = each.sum() - each[3]
    rest = np.delete(np.arange(len(world)), 3)
    np.testing.assert_allclose(without.solve(0.01)[0], RankRLS().fit(world[rest]).coef_, atol=1e-9)
    np.testing.assert_allclose((without + each[3]).solve(0.01)[0], RankRLS().fit(world).coef_, atol=1e-9)


def test_weights_count_repetitions() -> None:
    each = PairStatistics.from_queries(linear_queries())
    twice = each.sum([0, 1, 1, 2])
    weighted = each.sum([0, 1, 2], weights=[1.0, 2.0, 1.0])
    np.testing.assert_allclose(twice.solve(0.1), weighted.solve(0.1))


def test_index_is_positions_or_a_mask() -> None:
    each = PairStatistics.from_queries(linear_queries())
    mask = np.zeros(len(each), dtype=bool)
    mask[[2, 5]] = True
    assert each.sum(mask).pairs == each.sum([2, 5]).pairs
    assert each[-1].pairs == each.pairs[-1]
    assert len(list(each)) == len(each)
    for wrong in ([len(each)], [-1], [10**5], [0.5], mask[1:]):
        with pytest.raises(DataError, match="index must "):
            each.sum(wrong)
    for counts in ([0, 2], [3, 2], [9], []):
        with pytest.raises(DataError, match="counts must ascend from 1"):
            each.prefix_sums([1, 2, 3], counts)
    with pytest.raises(IndexError, match="row 99 of 40"):
        each[99]


def test_features_too_large_to_square_raise() -> None:
    queries = QuerySet.from_arrays([[1e30], [0.0]], y=[1, 0], qid=["shoes", "shoes"])
    with pytest.raises(DataError, match="features of query 'shoes' are missing or too large to square"):
        PairStatistics.from_queries(queries)


def test_bad_query_weights_raise_and_no_queries_give_zero_weights() -> None:
    world = linear_queries()
    with pytest.raises(DataError, match=r"one value per query \(40\)"):
        RankRLS().fit(world, query_weight=np.ones(41))
    with pytest.raises(DataError, match="finite and not negative"):
        LambdaMART(n_trees=1).fit(world, query_weight=-np.ones(40))
    assert RankRLS().fit(world[:0]).coef_.tolist() == [0.0] * 5


def test_without_pairs_weights_are_the_prior() -> None:
    queries = QuerySet.from_arrays([[1.0], [2.0]], y=[1, 1], group=[2])
    assert PairStatistics.from_queries(queries).solve(0.01, prior=[0.7]).tolist() == [[0.7]]
    assert RankSVM().fit(queries, prior=[0.7]).coef_.tolist() == [0.7]


def test_statistics_can_be_memory_mapped(tmp_path) -> None:
    each = PairStatistics.from_queries(linear_queries())
    folder.write(tmp_path / "s", "statistics", {}, {"gram": each.gram, "moment": each.moment, "pairs": each.pairs})
    _, arrays = folder.read(tmp_path / "s", "statistics")
    mapped = PairStatistics(**arrays)
    assert mapped.gram.dtype == np.float32
    np.testing.assert_array_equal(mapped.sum([5, 2]).solve(0.01), each.sum([5, 2]).solve(0.01))


def test_fit_in_blocks_equals_fit_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = linear_queries()
    whole = RankRLS().fit(world, query_weight=np.arange(len(world))).coef_
    monkeypatch.setattr("kinrank.learn.rankrls._QUERIES_AT_ONCE", 7)
    np.testing.assert_allclose(RankRLS().fit(world, query_weight=np.arange(len(world))).coef_, whole, atol=1e-12)


@pytest.mark.parametrize("learner", [RankRLS, RankSVM])
def test_penalty_must_be_positive(learner: type[RankRLS] | type[RankSVM]) -> None:
    with pytest.raises(ParameterError, match="penalty must be a positive number, got 0"):
        learner(penalty=0).fit(linear_queries())


def test_wrong_shapes_and_settings_raise() -> None:
    each = PairStatistics.from_queries(linear_queries(n_features=3))
    other = PairStatistics.from_queries(linear_queries(n_features=2))
    with pytest.raises(DataError, match="do not add"):
        each.sum() + other.sum()
    with pytest.raises(DataError, match=r"prior must have one weight per feature \(3\)"):
        each.solve(0.1, prior=[1.0])
    with pytest.raises(DataError, match="weights must be one per row summed"):
        each.sum([0, 1], weights=[1.0])
    with pytest.raises(DataError, match="query_weight must have one value per query"):
        pair_weights(each.pairs, "pairs", [1.0])
    with pytest.raises(DataError, match="finite and not negative"):
        pair_weights(each.pairs, "pairs", -np.ones(len(each)))
    with pytest.raises(ParameterError, match="balance must be 'pairs' or 'queries', got 'rows'"):
        pair_weights(each.pairs, "rows", None)


def test_subtracting_a_query_never_added_raises() -> None:
    each = PairStatistics.from_queries(linear_queries())
    with pytest.raises(DataError, match="every query subtracted was added before"):
        (each[0] - each.sum([1, 2, 3])).solve(1e-9)


def test_unknown_loss_raises() -> None:
    with pytest.raises(ParameterError, match="loss must be 'squared_hinge' or 'hinge', got 'log'"):
        RankSVM(loss="log").fit(linear_queries())


def test_lambdamart_with_fractional_grades_raises() -> None:
    queries = QuerySet.from_arrays([[1.0], [2.0]], y=[0.5, 1.0], qid=["shoes", "shoes"])
    with pytest.raises(DataError, match=r"whole grades from 0 to 30, got 0\.5 in query 'shoes'"):
        LambdaMART().fit(queries)
