"""Every `as_published` against a slow transcription of its paper that shares no code with it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from kinrank import ClusterRanker, EnsembleRanker, KnnRanker, QueryClassRanker, QuerySet
from kinrank.errors import ParameterError
from kinrank.kin import Describer
from kinrank.papers.atvt import ATVTRanker, KernelRidge
from reproduction.experiments.atvt import L1, OURS, PAPER, Setting
from tests.papers.transcriptions import geng, hoi_jin, local_models, zha

# The corner of the hinge is smoothed, so scores differ a little from those of the exact hinge.
HINGE = {"rtol": 2e-3, "atol": 5e-3}
NAMES = ["bm25", "links", "age"]


def judged(n: int, seed: int, *, camps: bool = True, noise: float = 0.5) -> QuerySet:
    """Return queries of two camps, or of all kinds between them, whose features have different units."""
    rng = np.random.default_rng(seed)
    kinds = rng.uniform(-1.0, 1.0, n)
    types = np.where(kinds > 0, "up", "down")
    kinds = np.sign(kinds) if camps else kinds
    X = rng.standard_normal((n, 6, 3)) * [1.0, 3.0, 0.3] + np.stack([kinds, kinds, 3.0 * kinds], axis=1)[:, None]
    wanted = X[..., 0] + kinds[:, None] * X[..., 1] + noise * rng.standard_normal((n, 6))
    grades = np.array([0, 0, 0, 1, 1, 2])[np.argsort(np.argsort(wanted))]
    rows = X.reshape(-1, 3).astype(np.float32)
    columns = {"type": types}
    return QuerySet.from_arrays(rows, grades.ravel(), group=[6] * n, feature_names=NAMES, query_columns=columns)


def as_lists(queries: QuerySet) -> list[geng.Query]:
    return [(query.X.astype(float).tolist(), query.grades.tolist()) for query in queries]


def assert_ranked_alike(scores: np.ndarray, expected: list[list[float]], tolerance: dict[str, float]) -> None:
    ours = scores.reshape(len(expected), -1)
    np.testing.assert_allclose(ours, expected, **tolerance)
    np.testing.assert_array_equal(np.argsort(ours, axis=1), np.argsort(expected, axis=1))


CAMPS, ASKED = judged(8, seed=1, noise=2.0), judged(2, seed=25, camps=False)
TRAIN, TEST = judged(10, seed=7, camps=False), judged(3, seed=107, camps=False)
K, T = 4, 3


@pytest.mark.parametrize(
    ("settings", "transcription", "argument"),
    [
        ({"n_neighbors": K}, geng.knn_online, K),
        ({"n_neighbors": K, "mode": "offline-1"}, geng.knn_offline_1, K),
        ({"n_neighbors": K, "mode": "offline-2"}, geng.knn_offline_2, K),
        ({"radius": 1.1}, geng.knn_radius, 1.1),
    ],
    ids=["online", "offline-1", "offline-2", "radius"],
)
def test_knn(settings: dict[str, Any], transcription: Any, argument: float) -> None:
    ranker = KnnRanker.as_published(top=T, **settings).fit(TRAIN)
    expected = [transcription(as_lists(TRAIN), documents, 0, T, argument) for documents, _ in as_lists(TEST)]
    assert_ranked_alike(ranker.predict(TEST), expected, HINGE)


def test_knn_modes_differ_on_these_queries() -> None:
    online, first, second = (
        KnnRanker.as_published(top=T, n_neighbors=K, mode=mode).fit(TRAIN).predict(TEST)
        for mode in ("online", "offline-1", "offline-2")
    )
    assert not np.allclose(online, first, atol=0.1)
    assert not np.allclose(first, second, atol=0.1)
    ranker = KnnRanker.as_published(top=T, radius=1.1).fit(TRAIN)
    assert [len(positions) for positions, _ in ranker.near(ranker.points(TEST))] == [0, 1, 2]


def test_query_features_are_compared_as_they_are() -> None:
    ranker = KnnRanker.as_published(top=T, n_neighbors=K).fit(TRAIN)
    points = [geng.query_feature(documents, 0, T) for documents, _ in as_lists(TRAIN)]
    asked = [geng.query_feature(documents, 0, T) for documents, _ in as_lists(TEST)]
    near = list(ranker.near(ranker.points(TEST)))
    for point, (positions, distances) in zip(asked, near, strict=True):
        assert positions.tolist() == geng.nearest(points, point, K)
        expected = [geng.euclidean_distance(points[i], point) for i in positions]
        np.testing.assert_allclose(distances, expected, rtol=1e-5)
    standardized = KnnRanker.as_published(describe=Describer("mean", reference="bm25", depth=T), n_neighbors=K).fit(
        TRAIN
    )
    others = standardized.near(standardized.points(TEST))
    assert any(a.tolist() != b.tolist() for (a, _), (b, _) in zip(near, others, strict=True))


@pytest.mark.parametrize("make", [KnnRanker.as_published, lambda **s: QueryClassRanker.as_published("type", **s)])
def test_reference_is_named_or_an_error_says_how(make: Any) -> None:
    with pytest.raises(ParameterError, match="set reference= to the name or position of the feature that ranks"):
        make(reference=None)
    with pytest.raises(ParameterError, match=r"'BM25' is not a feature: set reference= to .* out of bm25, links, age"):
        make(reference="BM25").fit(TRAIN)


def test_query_classes() -> None:
    ranker = QueryClassRanker.as_published("type", top=T).fit(TRAIN)
    types = TRAIN.query_columns["type"].tolist()
    asked = zip(as_lists(TEST), ranker.classify(TEST).tolist(), strict=True)
    expected = [geng.qc(as_lists(TRAIN), types, documents, its_type) for (documents, _), its_type in asked]
    assert_ranked_alike(ranker.predict(TEST), expected, HINGE)


# Relevant documents and scores of the two camps are far apart, so that every k-means finds the same clusters.
@pytest.mark.parametrize(
    ("mode", "settings", "transcription", "arguments"),
    [
        ("naive", {"top": T}, local_models.naive, (T,)),
        ("select", {"n_neighbors": 3}, local_models.select_ranker, (0, 3)),
        ("transform", {"top": T}, local_models.transform, (0, T)),
    ],
    ids=["naive", "select", "transform"],
)
def test_local_models(mode: Any, settings: dict[str, int], transcription: Any, arguments: tuple[int, ...]) -> None:
    ranker = ClusterRanker.as_published(mode, n_clusters=2, **settings).fit(CAMPS)
    expected = [transcription(as_lists(CAMPS), documents, *arguments) for documents, _ in as_lists(ASKED)]
    assert len(ranker.coef_) == 2
    assert_ranked_alike(
        ranker.predict(ASKED), expected, {"rtol": 2e-3, "atol": 2e-2}
    )  # opposite models cancel, their errors do not


GAMMA, PENALTY = 0.5, 1.0
H = KernelRidge(PENALTY, GAMMA)
JUDGED = judged(8, seed=3)


def assert_same_function(ranker: ATVTRanker, found: tuple[list[float], list[float], list[float]]) -> None:
    ranker.fit(JUDGED)
    for ours, expected in zip((ranker.predict(JUDGED), ranker.alpha_, ranker.beta_), found, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("p", "penalties", "rounds"), [(2, (10.0, 1.0), 10), (1, (100.0, 0.2), 1), (1, (0.2, 0.2), 3)])
def test_atvt_is_the_procedure_of_the_experiments(
    p: Literal[1, 2], penalties: tuple[float, float], rounds: int
) -> None:
    ranker = ATVTRanker.as_published(p, learner=H, scale="none", tol=0.0)
    if p == 1 and rounds > 1:  # the penalties of the paper leave most lines where they are
        ranker.set_params(alpha_penalty=penalties[0], beta_penalty=penalties[1], n_rounds=rounds)
    features, grades = zip(*as_lists(JUDGED), strict=True)
    assert_same_function(ranker, zha.atvt(features, grades, p, *penalties, rounds, GAMMA, PENALTY))
    assert (np.ptp(ranker.alpha_) > 0.01) == (penalties[0] < 100.0)


@pytest.mark.parametrize(("p", "penalties"), [(2, (10.0, 1.0)), (1, (0.2, 0.2))])
def test_atvt_by_default_is_the_alternating_optimization(p: Literal[1, 2], penalties: tuple[float, float]) -> None:
    alpha_penalty, beta_penalty = penalties
    ranker = ATVTRanker(H, p=p, alpha_penalty=alpha_penalty, beta_penalty=beta_penalty, scale="none", tol=0.0)
    features, grades = zip(*as_lists(JUDGED), strict=True)
    assert_same_function(ranker, zha.alternating_optimization(features, grades, p, *penalties, 2, GAMMA, PENALTY))


@pytest.mark.parametrize(
    ("ranker", "row"),
    [(ATVTRanker(), OURS), (ATVTRanker.as_published(), PAPER), (ATVTRanker.as_published(p=1), L1)],
    ids=["default", "p = 2", "p = 1"],
)
def test_atvt_settings_are_those_of_the_rows_in_the_table(ranker: ATVTRanker, row: Setting) -> None:
    assert (ranker.p, ranker.alpha_penalty, ranker.beta_penalty, ranker.n_rounds) == row[1:]
    assert (ranker.composed, ranker.weighted) == (row.reading == "paper", row.reading == "ours")


def ensembles() -> tuple[QuerySet, QuerySet, list[tuple[list[list[float]], list[int]]]]:
    """Return training and test queries with the scores of five rankers, the last of which disagrees with the grades."""
    rng = np.random.default_rng(4)
    quality = rng.standard_normal((11, 9))
    noise = rng.standard_normal((11, 9, 5)) * [0.5, 1.0, 1.5, 2.0, 1.0]
    scores = quality[..., None] * [1.0, 1.0, 1.0, 1.0, -1.0] + noise
    grades = np.clip(np.round(quality + 0.5), 0, 2)
    queries = QuerySet.from_arrays(scores.reshape(-1, 5).astype(np.float32), grades.ravel(), group=[9] * 11)
    train, test = queries[:8], queries[8:]
    return train, test, [(rows, [int(grade) - 1 for grade in own]) for rows, own in as_lists(train)]


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_ser_and_sser(gamma: float) -> None:
    train, test, labeled = ensembles()
    ranker = EnsembleRanker.as_published(gamma).fit(train)
    found = ranker.weights(test)
    for weights, (documents, _) in zip(found, as_lists(test), strict=True):
        expected = hoi_jin.sser(labeled, documents, gamma)
        assert min(expected) == pytest.approx(0.0, abs=1e-9)
        np.testing.assert_allclose(weights, expected, rtol=1e-5, atol=1e-7)
    if gamma == 0.0:
        np.testing.assert_allclose(found[0], hoi_jin.ser(labeled), rtol=1e-5, atol=1e-7)


def test_eq_13_without_its_multipliers_gives_negative_weights() -> None:
    train, _, labeled = ensembles()
    ranker = EnsembleRanker.as_published(gamma=0.0).fit(train)
    B = [hoi_jin.b(scores, labels) for scores, labels in labeled]
    _, alpha, eta = hoi_jin.dual(B, np.eye(5).tolist())
    eq_13 = np.array(alpha) @ np.array(B)
    assert eq_13.min() < -1e-3
    np.testing.assert_allclose(eq_13 + eta, ranker.coef_, atol=1e-7)


def test_eq_8_is_larger_than_eq_10_by_twice_the_degree() -> None:
    # Six documents are all among the five nearest of each other.
    G = np.random.default_rng(5).standard_normal((6, 3))
    w = np.array([0.2, 0.5, 0.3])
    f = G @ w
    eq_8 = 0.5 / 2 * sum((f[k] - f[l]) ** 2 for k in range(6) for l in range(6))  # noqa: E741
    eq_10 = 0.5 / 2 * f @ np.array(hoi_jin.normalized_laplacian(G.tolist())) @ f
    assert eq_8 == pytest.approx(2 * 5 * eq_10)
