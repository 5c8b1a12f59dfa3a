"""Worlds to test in: generated judged queries whose right answer is known.

`make_two_camps` is the smallest world in which one model for all queries must fail. `make_intents` has the sizes
and the difficulties of the data in Geng et al., SIGIR 2008: many features, five grades, and intents that shade into
one another.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import ndtri, softmax

from kinrank.data.grouping import offsets_of
from kinrank.data.queryset import QuerySet
from kinrank.errors import ParameterError

_LATENT = 2  # dimensions of the map that queries lie on
_RADIUS = 0.8  # of the circle of intents; queries scatter around their intent with standard deviation 1
_SHARPNESS = 5.0  # of the passage from one intent to the next; at 1 it would be the posterior P(intent | place)
_SHIFT = 0.3  # standard deviation that the place on the map gives to a feature's mean
_FACTORS = 10  # dimensions that features share, half of their variance
_REFERENCE = 0.3  # correlation of the reference column with the ideal score, in every query
_RICHNESS = 0.5  # standard deviation of the query's own level: some queries have many good documents, some none
_DECAY = 0.45  # each grade is this much rarer than the one below

_Float = NDArray[np.float64]


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
    """Judged queries of several intents, each with its own ideal weights.

    Intents lie on a circle of a hidden map. A query is drawn around its intent, so widely that the intents mix, and it
    is its place on the map that decides which weights it wants: those of the intent it lies towards, or something
    between two. So neighbors on the map want nearly the same, while queries with the same label may not: a classifier
    of labels is often wrong, and the models of its classes are blurred.

    What can be seen of the place is a shift of all the features of the query's documents, so a mean over documents
    shows it. The shift is the same for all documents of a query: it tells which queries this one is like, never which
    document is better.

    Parameters
    ----------
    n_train, n_test
        How many queries; the column ``split`` says which is which, training queries come first.
    n_docs
        Documents per query: a number, or the smallest and the largest number.
    n_features
        Columns of X, at least ``n_intents + 2``. The first, ``reference``, is the score of a BM25-like ranker: it
        helps in every intent.
    n_grades
        Grades run from 0 to ``n_grades - 1``; each is about half as frequent as the one below.
    n_intents
        How many intents; the column ``intent`` says which one a query was drawn around.
    spread
        From 0, all intents want the same weights, to 1, they want unrelated ones: the correlation between the ideal
        scores of two intents is ``1 - spread``, the reference column aside.
    revealed
        From 0, the features of a query show a place on the map that has nothing to do with its own, to 1, they show
        its own: the correlation between the two.
    noise
        Standard deviation of what the judge adds to the ideal score, whose own is 1 within a query.
    seed
        The same seed gives the same queries.

    Returns
    -------
    QuerySet
        With the query columns ``intent`` and ``split``.

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
    _at_least("n_train", n_train, 1)
    _at_least("n_test", n_test, 0)
    _at_least("n_docs", low, 1)
    _at_least("the larger n_docs", high, low)
    _at_least("n_grades", n_grades, 2)
    _at_least("n_intents", n_intents, 1)
    # One direction for the reference, one that all share, one of each intent's own.
    _at_least("n_features", n_features, n_intents + 2)
    _share("spread", spread)
    _share("revealed", revealed)
    if not noise >= 0:
        raise ParameterError(f"noise is {noise}: a standard deviation is 0 or more")

    rng = np.random.default_rng(seed)
    loadings, places = _features_world(rng, n_features)
    n_queries = n_train + n_test
    intent, point, share = _draw_queries(rng, n_queries, n_intents)
    weights = _ideal_weights(rng, share, spread, loadings)

    sizes = rng.integers(low, high, size=n_queries, endpoint=True)
    rows = int(sizes.sum())
    query_of_row = np.repeat(np.arange(n_queries), sizes)
    # Drawn in float32: at the paper's sizes X is the whole cost.
    X = rng.standard_normal((rows, n_features), dtype=np.float32)
    X *= np.float32(np.sqrt(0.5))
    X += rng.standard_normal((rows, len(loadings)), dtype=np.float32) @ loadings.astype(np.float32)
    score = np.einsum("ij,ij->i", X, weights.astype(np.float32)[query_of_row])
    seen = revealed * point + np.sqrt(1 - revealed**2) * _draw_queries(rng, n_queries, n_intents)[1]
    X += (seen @ places).astype(np.float32)[query_of_row]

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
    """Judged queries of which half want their documents by ``value`` ascending, half descending.

    The column ``camp`` of X is -1 or 1 for all documents of a query and says which half it belongs to. One linear
    model has to take sides, so it ranks half of the queries backwards; a model learned from queries with the same
    camp ranks all of them perfectly.

    Parameters
    ----------
    n_queries
        How many queries.
    n_docs
        Documents per query.
    seed
        The same seed gives the same queries.

    Returns
    -------
    QuerySet
        Grades 0 to 4, and the query column ``camp``.

    Examples
    --------
    >>> queries = make_two_camps(n_queries=2, n_docs=3)
    >>> best = [query.X[query.grades.argmax(), 0] - query.X[:, 0].mean() for query in queries]
    >>> np.sign(best).tolist(), queries.query_columns["camp"].tolist()
    ([1.0, -1.0], [1, -1])
    """
    _at_least("n_queries", n_queries, 2)
    _at_least("n_docs", n_docs, 2)
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


def _features_world(rng: np.random.Generator, n_features: int) -> tuple[_Float, _Float]:
    """What features share within a query, and how the place on the map shifts them."""
    factors = min(_FACTORS, n_features)
    loadings = rng.standard_normal((factors, n_features)) * np.sqrt(0.5 / factors)
    places = _SHIFT * rng.standard_normal((_LATENT, n_features))
    return loadings, places


def _uncorrelated_scores(rng: np.random.Generator, count: int, loadings: _Float) -> _Float:
    """Random weights whose scores have variance 1 and no correlation within a query; the first is the reference."""
    n_features = loadings.shape[1]
    covariance = loadings.T @ loadings + 0.5 * np.eye(n_features)
    drawn = rng.standard_normal((count, n_features))
    drawn[0] = np.eye(n_features)[0]
    # Gram-Schmidt by the Cholesky factor of the scores' covariance: row i mixes rows 0..i only.
    factor = np.linalg.cholesky(drawn @ covariance @ drawn.T)
    return solve_triangular(factor, drawn, lower=True)


def _ideal_weights(rng: np.random.Generator, share: _Float, spread: float, loadings: _Float) -> _Float:
    """The weights each query wants: the reference, a part that all queries share, and its intents' own parts."""
    n_queries, n_intents = share.shape
    common = np.full((n_queries, 1), np.sqrt(1 - spread))
    taste = np.hstack([common, np.sqrt(spread) * share])
    taste *= np.sqrt(1 - _REFERENCE**2) / np.linalg.norm(taste, axis=1, keepdims=True)
    parts = np.hstack([np.full((n_queries, 1), _REFERENCE), taste])
    weights: _Float = parts @ _uncorrelated_scores(rng, n_intents + 2, loadings)
    return weights


def _draw_queries(rng: np.random.Generator, n_queries: int, n_intents: int) -> tuple[NDArray[np.int64], _Float, _Float]:
    """The intent of each query, its place on the map, and the share of every intent at that place.

    The places are a mixture of Gaussians, one per intent. The shares are its posterior P(intent | place), sharpened.
    """
    angle = 2 * np.pi * np.arange(n_intents) / n_intents
    centers = _RADIUS * np.column_stack([np.cos(angle), np.sin(angle)])
    intent = rng.integers(n_intents, size=n_queries)
    point = centers[intent] + rng.standard_normal((n_queries, _LATENT))
    share: _Float = softmax(_SHARPNESS * point @ centers.T, axis=1)  # centers are equally long, so their norms cancel
    return intent, point, share


def _thresholds(n_grades: int, noise: float) -> _Float:
    """Scores at which the grade rises, so that the shares of grades fall by `_DECAY`."""
    shares = _DECAY ** np.arange(n_grades)
    below = np.cumsum(shares / shares.sum())[:-1]
    cuts: _Float = ndtri(below) * np.sqrt(1 + noise**2 + _RICHNESS**2)
    return cuts


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ParameterError(f"{name} is {value}: it must be at least {least}")


def _share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ParameterError(f"{name} is {value}: it must lie between 0 and 1")
