"""The one way into a ranker: arrays in any row order, data frames and query sets become a checked `QuerySet`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar, get_type_hints

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import validate_data

from kinrank.data.query_rows import check_grades_are_numbers, default_names
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, VECTORS, QueryTexts, QueryVectors, align_texts, align_vectors
from kinrank.errors import DataError

_QUERIES_AT_ONCE = 4096

F = TypeVar("F", bound=Callable[..., Any])


class QueryArrays(TypedDict, total=False):
    """What rankers take next to X, by keyword; nothing of it if X is a `QuerySet`, which has its own.

    Attributes
    ----------
    qid
        The query of each row, in any order.
    group
        Instead of qid: the number of rows of each query, in order.
    query_vectors
        A vector per query, such as a text embedding: a mapping from query id to vector, or an array with one row per
        query in order of first appearance. Rankers that do not describe queries ignore them.
    query_text
        The text of each query: a mapping from query id to text, or a sequence in order of first appearance. Rankers
        with an encoder turn it into query vectors.
    doc_id
        The document of each row. Rankers with memory find documents by it.
    keys
        Other values of the document of each row by name, such as its site or brand; a ranker with memory names those
        that it uses by its own parameter `keys`.
    """

    qid: ArrayLike | None
    group: ArrayLike | None
    query_vectors: QueryVectors | None
    query_text: QueryTexts | None
    doc_id: ArrayLike | None
    keys: Mapping[str, ArrayLike] | None


class JudgedArrays(QueryArrays, total=False):
    """What rankers take next to X and y, by keyword.

    Attributes
    ----------
    sample_weight
        How much the judgment of each row counts, at least 0. A pair of candidates counts the product of their
        weights, except in boosted trees, which weigh each candidate.
    """

    sample_weight: ArrayLike | None


_ADVICE = {
    "features, but": "Pass the features of fit, in the same order; a QuerySet or a DataFrame finds them by name.",
    "0 sample(s)": "Pass the candidates of at least one query; if the search found none, there is nothing to rank.",
}
"""What to do about errors of scikit-learn, by a part of their text."""


def takes_arrays(method: F) -> F:
    """Spell out ``**arrays`` in the signature of a method, for scikit-learn's metadata routing and for `help`."""
    signature = inspect.signature(method)
    accepted = JudgedArrays if "y" in signature.parameters else QueryArrays
    spelled_out = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in get_type_hints(accepted).items()
    ]
    given = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    method.__signature__ = signature.replace(parameters=given + spelled_out)  # type: ignore[attr-defined]
    return method


def read_queries(
    ranker: Any,
    X: ArrayLike | QuerySet,
    y: ArrayLike | None,
    *,
    fitting: bool,
    qid: ArrayLike | None = None,
    group: ArrayLike | None = None,
    query_vectors: QueryVectors | None = None,
    query_text: QueryTexts | None = None,
    doc_id: ArrayLike | None = None,
    keys: Mapping[str, ArrayLike] | None = None,
    sample_weight: ArrayLike | None = None,
) -> QuerySet:
    """Return the input of a public method as a checked query set. Its `row_order` is that of the arrays given."""
    if isinstance(X, QuerySet):
        if any(given is not None for given in (y, qid, group, doc_id, keys, sample_weight)):
            raise DataError("X is a QuerySet, which has its own y, qid, doc_id and sample_weight: pass it alone")
        queries = X if X.row_order is None else X.replace(row_order=None)
        if fitting:
            ranker.n_features_in_ = queries.n_features
            ranker.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        else:
            ranker.check_features(queries.feature_names)
    else:
        rows = {"qid": qid, "group": group, "doc_id": doc_id, "doc_columns": keys, "sample_weight": sample_weight}
        queries = _from_arrays(ranker, X, y, rows, fitting)
    if fitting:
        _check_judged(queries)
        ranker.feature_names_ = queries.feature_names
    columns: dict[str, Any] = {}
    if query_vectors is not None:
        columns[VECTORS] = align_vectors(queries, query_vectors)
    if query_text is not None:
        columns[TEXT] = align_texts(queries, query_text)
    return queries.replace(query_columns={**queries.query_columns, **columns}) if columns else queries


def _from_arrays(ranker: Any, X: ArrayLike, y: ArrayLike | None, of_rows: dict[str, Any], fitting: bool) -> QuerySet:
    if not fitting and hasattr(X, "columns") and not hasattr(ranker, "feature_names_in_"):
        # Fitted on a QuerySet, or loaded: scikit-learn has seen no names, but we have.
        if ranker.feature_names_ != default_names(len(ranker.feature_names_)):
            ranker.check_features(tuple(map(str, X.columns)))
        X = np.asarray(X)
    # Finiteness is checked later, where the message can name the query and the feature.
    settings: dict[str, Any] = {"reset": fitting, "dtype": np.float32, "ensure_all_finite": False}
    if y is None and not fitting:
        rows, grades = _validate(ranker, X, **settings), None
    else:
        check_grades_are_numbers([] if y is None else y)
        # One row alone has no order to learn.
        least = 2 if fitting else 1
        rows, grades = _validate(ranker, X, y, y_numeric=True, ensure_min_samples=least, **settings)
    if of_rows["qid"] is None and of_rows["group"] is None:
        if fitting or y is not None:
            warnings.warn(
                f"no qid= and no group=: all {len(rows)} rows are taken as candidates of one query",
                UserWarning,
                stacklevel=5,
            )
        of_rows = {**of_rows, "group": [len(rows)]}
    names = getattr(ranker, "feature_names_in_", None) if fitting else ranker.feature_names_
    return QuerySet.from_arrays(rows, grades, feature_names=names, **of_rows)


def _validate(ranker: Any, *arrays: ArrayLike | None, **settings: Any) -> Any:
    """Check arrays as scikit-learn does, and add to its message what to do."""
    try:
        return validate_data(ranker, *arrays, **settings)
    except ValueError as error:
        for part, advice in _ADVICE.items():
            if part in str(error):
                raise DataError(f"{error} {advice}") from error
        raise


def _check_judged(queries: QuerySet) -> None:
    if not queries.n_rows:
        raise DataError("there is no query to learn from")
    if queries.sample_weight is not None and not np.any(queries.sample_weight):
        raise DataError("Sample weights must contain at least one non-zero number: check sample_weight")
    # In blocks, and no further than needed: the set may be larger than memory.
    for start in range(0, len(queries), _QUERIES_AT_ONCE):
        block = queries[start : start + _QUERIES_AT_ONCE]
        if not np.array_equal(block.grades, np.repeat(block.grades[block.offsets[:-1]], block.sizes)):
            return
    raise DataError(
        f"in each of the {len(queries)} queries all grades are equal, so there is nothing to learn an order from: "
        "check y and qid"
    )


def feature_difference(expected: tuple[str, ...], got: tuple[str, ...]) -> str:
    """Return a message that says how features differ from those of fit."""
    missing = [name for name in expected if name not in got]
    extra = [name for name in got if name not in expected]
    if missing or extra:
        return (
            f"the ranker was fitted on {len(expected)} features, got {len(got)}: "
            f"missing {_first_few(missing)}, unknown {_first_few(extra)}; pass the features of fit, by the same names"
        )
    return (
        f"the features are in another order than in fit: expected {_first_few(expected)}, got {_first_few(got)}; "
        "reorder the columns"
    )


def _first_few(names: Sequence[str]) -> str:
    """Return the first few names and how many more there are."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return f"{list(names[:5])}{more}"
