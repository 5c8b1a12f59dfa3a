"""Neighbors against scikit-learn's, by count and by radius, on generated and real data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from kinrank.data.queryset import QuerySet
from kinrank.kin import Describer
from kinrank.kin.indexes import INDEXES

EXACT = [name for name in INDEXES if INDEXES[name].recall == 1.0]


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("dim", [2, 46])
def test_neighbors_match_scikit_learn(name: str, dim: int) -> None:
    rng = np.random.default_rng(dim)
    points, queries = rng.standard_normal((2000, dim)), rng.standard_normal((20, dim))
    points, queries = points.astype(np.float32), queries.astype(np.float32)
    oracle = NearestNeighbors(algorithm="ball_tree").fit(points.astype(np.float64))
    index = INDEXES[name]().fit(points)
    far, which = oracle.kneighbors(queries.astype(np.float64), 100)
    distances, indices = index.query(queries, 100)
    np.testing.assert_array_equal(indices, which)
    np.testing.assert_allclose(distances, far, rtol=1e-12)
    radius = float(far[:, 50].mean())
    far, which = oracle.radius_neighbors(queries.astype(np.float64), radius, sort_results=True)
    distances, indices, offsets = index.query_radius(queries, radius)
    assert offsets[-1] > 0
    for row in range(len(queries)):
        np.testing.assert_array_equal(indices[offsets[row] : offsets[row + 1]], which[row])


def test_principal_components_match_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    mixed = rng.standard_normal((500, 6)) @ rng.standard_normal((6, 6))
    queries = QuerySet.from_arrays(mixed, group=[5] * 100)
    plain = Describer("mean+max").fit(queries).transform(queries)
    ours = Describer("mean+max", n_components=3).fit(queries).transform(queries)
    theirs = PCA(3).fit_transform(plain.astype(np.float64))
    centered = ours - ours.mean(axis=0)
    np.testing.assert_allclose(np.abs(centered), np.abs(theirs), atol=1e-4)


@pytest.mark.data("text/mwmbl")
def test_neighbors_of_real_queries_match_scikit_learn(data_dir: Path) -> None:
    file = np.load(data_dir / "text" / "mwmbl" / "features.npz")
    queries = QuerySet.from_arrays(file["X"], group=np.diff(file["offsets"]))
    points = Describer("summaries", reference=0).fit(queries).transform(queries)
    oracle = NearestNeighbors(algorithm="ball_tree").fit(points.astype(np.float64))
    far, _ = oracle.kneighbors(points.astype(np.float64), 100)
    for name in EXACT:
        distances, _ = INDEXES[name]().fit(points).query(points, 100)
        np.testing.assert_allclose(distances, far, rtol=1e-9, atol=1e-12)
