"""Generated judged queries whose best ranking is known.

`make_two_camps` is the smallest dataset on which one model for all queries must fail. `make_intents` resembles the data
of Geng et al. 2008: many features, five grades, and intents that overlap.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri, softmax

from kinrank.arrays import Float64
from kinrank.data.query_rows import offsets_of
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError

_LATENT = 2  # dimensions of the latent space of queries
_RADIUS = 0.8  # of the circle of intent centers; queries scatter around theirs with standard deviation 1
_SHARPNESS = 5.0  # of the transition between intents; 1 is the posterior P(intent | point)
_SHIFT = 0.3  # standard deviation of a feature's mean over queries
_FACTORS = 10  # common factors of the features, with half of their variance
_REFERENCE = 0.3  # correlation of the reference feature with the ideal score in every query
_RICHNESS = 0.5  # standard deviation of the score level of queries: some have many good documents, some none
_DECAY = 0.45  # frequency of each grade relative to the one below


def make_intents(
    n_train: int = 1_500,
    n_test: int = 400,
    *,
    n_docs: int | tuple[int, int] = (40, 60),
    n_features: int = 200,
    n_grades: int = 5,
    n_intents: int = 3,
    spread: float = 0.5,
    revealed: float = 0.9,
    noise: float = 1.0,
    seed: int = 0,
) -> QuerySet:
    """Generate judged queries of several overlapping intents, each with its own ideal weights.

    Intents are centers on a circle in a latent space, and a query is a point around its center. The ideal weights of a
    query depend on its point: they are those of the closest intent, or a mix of two. Nearby queries therefore have
    similar ideal weights, while queries with the same intent label may not, so that a classifier of labels is often
    wrong and the models of its classes are blurred.

    The point shows as a shift of the features that is the same for all documents of a query. It is visible in the mean
    over documents and reveals which queries are similar, but never which document is better.

    Parameters
    ----------
    n_train, n_test
        Number of queries. The query column ``split`` is "train" or "test"; training queries come first.
    n_docs
        Documents per query: a number, or a range (smallest, largest).
    n_features
        Number of features, at least ``n_intents + 2``. The first, ``reference``, is like a BM25 score: it is useful for
        every intent.
    n_grades
        Grades are 0 to ``n_grades - 1``, each about half as frequent as the one below.
    n_intents
        Number of intents. The query column ``intent`` has the intent of each query.
    spread
        How much the ideal weights of intents differ, from 0 (equal) to 1 (unrelated): the correlation between the ideal
        scores of two intents is ``1 - spread``, apart from the reference feature.
    revealed
        How well the features show the latent point of a query, from 0 (not at all) to 1 (exactly): the correlation
        between the point and what they show.
    noise
        Standard deviation of the error of judgments, relative to that of the ideal score within a query.
    seed
        Seed of the random generator.

    Returns
    -------
    QuerySet
        Queries with the query columns ``intent`` and ``split``.

    Examples
    --------
    >>> queries = make_intents(30, 10, n_docs=20, n_features=8)
    >>> queries
    QuerySet(40 queries, 800 rows, 8 features, judged)
    >>> train = queries[queries.query_columns["split"] == "train"]
    >>> len(train), np.unique(train.query_columns["intent"]).tolist()
    (30, [0, 1, 2])
    """
    low, high = (n_docs, n_docs) if isinstance(n_docs, int) else n_docs
    _check_at_least("n_train", n_train, 1)
    _check_at_least("n_test", n_test, 0)
    _check_at_least("n_docs", low, 1)
    _check_at_least("the larger n_docs", high, low)
    _check_at_least("n_grades", n_grades, 2)
    _check_at_least("n_intents", n_intents, 1)
    # One direction for the reference, one that all intents share, one for each intent.
    _check_at_least("n_features", n_features, n_intents + 2)
    _check_share("spread", spread)
    _check_share("revealed", revealed)
    if not noise >= 0:
        raise ParameterError(f"noise must be at least 0, got {noise}")

    rng = np.random.default_rng(seed)
    loadings, shifts = _draw_feature_model(rng, n_features)
    n_queries = n_train + n_test
    intent, point, share = _draw_queries(rng, n_queries, n_intents)
    weights = _ideal_weights(rng, share, spread, loadings)

    sizes = rng.integers(low, high, size=n_queries, endpoint=True)
    rows = int(sizes.sum())
    query_of_row = np.repeat(np.arange(n_queries), sizes)
    # Drawn in float32, because X is most of the cost at the sizes of the paper.
    X = rng.standard_normal((rows, n_features), dtype=np.float32)
    X *= np.float32(np.sqrt(0.5))
    X += rng.standard_normal((rows, len(loadings)), dtype=np.float32) @ loadings.astype(np.float32)
    score = np.einsum("ij,ij->i", X, weights.astype(np.float32)[query_of_row])
    seen = revealed * point + np.sqrt(1 - revealed**2) * _draw_queries(rng, n_queries, n_intents)[1]
    X += (seen @ shifts).astype(np.float32)[query_of_row]

    judged = score + noise * rng.standard_normal(rows) + _RICHNESS * rng.standard_normal(n_queries)[query_of_row]
    y = np.searchsorted(_thresholds(n_grades, noise), judged)
    return QuerySet(
        X=X,
        y=y.astype(np.float32),
        offsets=offsets_of(sizes),
        qid=np.arange(n_queries),
        doc_id=np.arange(len(X)),
        feature_names=("reference", *(f"f{column}" for column in range(2, n_features + 1))),
        query_columns={"intent": intent, "split": np.repeat(["train", "test"], [n_train, n_test])},
    )


def make_two_camps(n_queries: int = 100, n_docs: int = 20, *, seed: int = 0) -> QuerySet:
    """Generate judged queries of which half rank documents by ascending ``value``, half by descending ``value``.

    The feature ``camp`` is 1 for all documents of a query of the first half and -1 for those of the second. One linear
    model ranks half of the queries backwards; a model learned from queries of the same camp ranks them perfectly.

    Parameters
    ----------
    n_queries
        Number of queries.
    n_docs
        Documents per query.
    seed
        Seed of the random generator.

    Returns
    -------
    QuerySet
        Queries with grades 0 to 4 and the query column ``camp``.

    Examples
    --------
    >>> queries = make_two_camps(n_queries=2, n_docs=3)
    >>> best = [query.X[query.grades.argmax(), 0] - query.X[:, 0].mean() for query in queries]
    >>> np.sign(best).tolist(), queries.query_columns["camp"].tolist()
    ([1.0, -1.0], [1, -1])
    """
    _check_at_least("n_queries", n_queries, 2)
    _check_at_least("n_docs", n_docs, 2)
    rng = np.random.default_rng(seed)
    camp = np.where(np.arange(n_queries) % 2 == 0, 1, -1)
    value = rng.random((n_queries, n_docs)).astype(np.float32)
    rank = np.argsort(np.argsort(value * camp[:, None], axis=1), axis=1)
    X = np.stack([value, np.broadcast_to(camp[:, None], value.shape)], axis=2, dtype=np.float32)
    return QuerySet(
        X=X.reshape(-1, 2),
        y=(rank * 5 // n_docs).astype(np.float32).ravel(),
        offsets=offsets_of(np.full(n_queries, n_docs)),
        qid=np.arange(n_queries),
        doc_id=np.arange(n_queries * n_docs),
        feature_names=("value", "camp"),
        query_columns={"camp": camp},
    )


def _draw_feature_model(rng: np.random.Generator, n_features: int) -> tuple[Float64, Float64]:
    """Return the factor loadings of the features, and how the latent point shifts them."""
    factors = min(_FACTORS, n_features)
    loadings = rng.standard_normal((factors, n_features)) * np.sqrt(0.5 / factors)
    shifts = _SHIFT * rng.standard_normal((_LATENT, n_features))
    return loadings, shifts


def _uncorrelated_scores(rng: np.random.Generator, count: int, loadings: Float64) -> Float64:
    """Return random weights with uncorrelated scores of variance 1; the first is the reference feature."""
    n_features = loadings.shape[1]
    covariance = loadings.T @ loadings + 0.5 * np.eye(n_features)
    drawn = rng.standard_normal((count, n_features))
    drawn[0] = np.eye(n_features)[0]
    # Gram-Schmidt by the Cholesky factor of the covariance of the scores: row i mixes rows 0..i only.
    factor = np.linalg.cholesky(drawn @ covariance @ drawn.T)
    return solve_triangular(factor, drawn, lower=True)


def _ideal_weights(rng: np.random.Generator, share: Float64, spread: float, loadings: Float64) -> Float64:
    """Return the ideal weights of each query: the reference, a part common to all queries, and those of its intents."""
    n_queries, n_intents = share.shape
    common = np.full((n_queries, 1), np.sqrt(1 - spread))
    mix = np.hstack([common, np.sqrt(spread) * share])
    mix *= np.sqrt(1 - _REFERENCE**2) / np.linalg.norm(mix, axis=1, keepdims=True)
    parts = np.hstack([np.full((n_queries, 1), _REFERENCE), mix])
    weights: Float64 = parts @ _uncorrelated_scores(rng, n_intents + 2, loadings)
    return weights


def _draw_queries(
    rng: np.random.Generator, n_queries: int, n_intents: int
) -> tuple[NDArray[np.int64], Float64, Float64]:
    """Return the intent and the latent point of each query, and the share of each intent at that point.

    The points are a mixture of Gaussians, one per intent. The shares are the sharpened posterior P(intent | point).
    """
    angle = 2 * np.pi * np.arange(n_intents) / n_intents
    centers = _RADIUS * np.column_stack([np.cos(angle), np.sin(angle)])
    intent = rng.integers(n_intents, size=n_queries)
    point = centers[intent] + rng.standard_normal((n_queries, _LATENT))
    share: Float64 = softmax(_SHARPNESS * point @ centers.T, axis=1)  # centers have equal norms, which cancel
    return intent, point, share


def _thresholds(n_grades: int, noise: float) -> Float64:
    """Return the scores at which the grade increases, so that the shares of grades decrease by `_DECAY`."""
    shares = _DECAY ** np.arange(n_grades)
    below = np.cumsum(shares / shares.sum())[:-1]
    cuts: Float64 = ndtri(below) * np.sqrt(1 + noise**2 + _RICHNESS**2)
    return cuts


def _check_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ParameterError(f"{name} must be at least {least}, got {value}")


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ParameterError(f"{name} must be between 0 and 1, got {value}")
