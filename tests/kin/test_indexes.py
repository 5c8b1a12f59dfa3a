from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import kinrank.kin.indexes
from kinrank.errors import DataError, ParameterError
from kinrank.kin.indexes import INDEXES, NeighborIndex, choose_index, make_index
from kinrank.kin.indexes._faiss import FaissHNSWIndex, FaissIVFIndex
from kinrank.kin.indexes.base import ExactIndex
from kinrank.registry import import_extra
from tests.kin.index_checks import CHECKS, brute_force


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", list(INDEXES))
def test_index_passes_check(name: str, check: Callable[[NeighborIndex], None]) -> None:
    check(INDEXES[name]())


@given(
    points=arrays(np.float32, st.tuples(st.integers(1, 40), st.just(3)), elements=st.floats(-4, 4, width=16)),
    shift=st.sampled_from([0.0, 100.0, -3000.0]),
    k=st.integers(1, 40),
)
def test_exact_order_matches_float64_far_from_the_origin(points: np.ndarray, shift: float, k: int) -> None:
    points = points + np.float32(shift)
    k = min(k, len(points))
    _, indices = ExactIndex().fit(points).query(points[:1], k)
    np.testing.assert_array_equal(indices[0], brute_force(points, points[0])[1][:k])


def test_exact_index_corrects_float32_rounding() -> None:
    # Far from the origin, the product form loses all digits of these distances.
    points = (1e4 + np.random.default_rng(0).standard_normal((2000, 40))).astype(np.float32)
    naive = (points * points).sum(axis=1) - 2 * points @ points[0]
    truth = brute_force(points, points[0])[1][:50]
    assert (np.argsort(naive, kind="stable")[:50] != truth).any()
    np.testing.assert_array_equal(ExactIndex().fit(points).query(points[:1], 50)[1][0], truth)


def test_chunks_do_not_change_results(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    whole = ExactIndex().fit(points).query(points, 7)[1]
    monkeypatch.setattr(kinrank.kin.indexes.base, "_CHUNK", 250)
    np.testing.assert_array_equal(ExactIndex().fit(points).query(points, 7)[1], whole)


def test_empty_query_raises() -> None:
    with pytest.raises(DataError, match="non-empty array"):
        ExactIndex().fit([[1.0]]).query(np.empty((0, 1)), 1)


def test_faiss_settings_trade_time_for_recall() -> None:
    points = np.random.default_rng(0).standard_normal((4000, 16)).astype(np.float32)
    truth = ExactIndex().fit(points).query(points[:20], 50)[1]

    def recall(index: NeighborIndex) -> float:
        found = index.fit(points).query(points[:20], 50)[1]
        return float(np.mean([np.isin(a, b).mean() for a, b in zip(truth, found, strict=True)]))

    assert recall(FaissIVFIndex(n_cells=64, n_probe=2)) < recall(FaissIVFIndex(n_cells=64, n_probe=64)) == 1.0
    assert recall(FaissHNSWIndex(n_links=4, ef_construction=8)) < recall(FaissHNSWIndex(ef_search=800))


def test_ivf_scans_when_its_cells_hold_too_few_points() -> None:
    points = np.random.default_rng(0).standard_normal((100, 4)).astype(np.float32)
    index = FaissIVFIndex(n_cells=20, n_probe=1).fit(points)
    truth = brute_force(points, points[0])[1][:90]
    np.testing.assert_array_equal(index.query(points[:1], 90)[1][0], truth)


def test_faiss_threads_are_restored() -> None:
    faiss = import_extra("faiss", "faiss")
    before = faiss.omp_get_max_threads()
    points = np.zeros((50, 2), dtype=np.float32)
    INDEXES["faiss-hnsw"](n_threads=before + 1).fit(points).query(points, 1)
    assert faiss.omp_get_max_threads() == before


def test_index_is_chosen_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_index(10_000, 430) == "exact"
    monkeypatch.setattr(kinrank.kin.indexes, "find_spec", lambda name: object())
    assert choose_index(1_000_000, 46) == "faiss-ivf"
    monkeypatch.setattr(kinrank.kin.indexes, "find_spec", lambda name: None)
    assert choose_index(1_000_000, 46) == "exact"


def test_make_index_returns_a_new_one() -> None:
    assert isinstance(make_index("auto", 100, 4), ExactIndex)
    assert isinstance(make_index("faiss-ivf", 100, 4), FaissIVFIndex)
    given_index = FaissIVFIndex(n_probe=3)
    copied = make_index(given_index, 100, 4)
    assert copied is not given_index
    assert copied.get_params() == given_index.get_params()
    with pytest.raises(ParameterError, match="unknown index 'annoy'"):
        make_index("annoy", 100, 4)
    with pytest.raises(ParameterError, match="got int"):
        make_index(3, 100, 4)  # type: ignore[arg-type]
