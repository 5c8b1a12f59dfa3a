"""LambdaMART, trained by LightGBM."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from kinrank.data.grouping import shuffle_within_queries
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.learn.base import Learner, check_query_weight
from kinrank.learn.boosting import BoosterMixin
from kinrank.learn.tree_files import read_trees

HIGHEST_GRADE = 30  # the last entry of LightGBM's default gain table


class LambdaMART(BoosterMixin, Learner):
    """Boosted trees on the LambdaRank objective (Burges 2010), trained by LightGBM; or trees that you have already.

    Needs ``pip install 'kinrank[lightgbm]'``. Grades must be whole numbers from 0 to 30. NaN features are allowed.

    Parameters
    ----------
    n_trees, n_leaves, learning_rate, min_rows_in_leaf
        LightGBM's ``num_iterations``, ``num_leaves``, ``learning_rate`` and ``min_data_in_leaf``, with its defaults.
    params : dict, optional
        Further LightGBM parameters.
    n_threads : int
        Number of threads; 0 chooses by the size of the data, at most `kinrank.parallel.usable_threads`.
    seed : int
        Random seed; training is deterministic for a given seed.
    model : str, optional
        A model file of LightGBM or XGBoost. `fit` then trains nothing: it reads these trees and checks that the data
        have their features. See `kinrank.learn.tree_files.read_trees`.

    Attributes
    ----------
    booster_ : lightgbm.Booster
    feature_importances_ : float64 array of shape (features,)
        The share of each feature in the loss that the splits of all trees save.
    validation_ndcg_ : float64 array of shape (n_trees,)
        NDCG@10 on the validation queries after each tree. Set only if `fit` was given some.

    Examples
    --------
    >>> X, y = np.tile(np.arange(9.0), 10)[:, None], np.tile(np.arange(9) // 3, 10)
    >>> queries = QuerySet.from_arrays(X, y, group=[9] * 10)
    >>> model = LambdaMART(n_trees=5).fit(queries)
    >>> scores = model.predict(np.array([[0.0], [8.0]]))
    >>> bool(scores[1] > scores[0])
    True
    """

    def __init__(
        self,
        n_trees: int = 100,
        n_leaves: int = 31,
        learning_rate: float = 0.1,
        min_rows_in_leaf: int = 20,
        params: dict[str, Any] | None = None,
        n_threads: int = 0,
        seed: int = 0,
        model: str | None = None,
    ) -> None:
        super().__init__(n_trees, n_leaves, learning_rate, min_rows_in_leaf, params, n_threads, seed)
        self.model = model

    @property
    def learns(self) -> bool:
        """Whether `fit` trains, rather than read trees from a file."""
        return self.model is None

    def check(self, queries: QuerySet) -> None:
        """Raise `DataError` if a grade is not a whole number from 0 to 30."""
        grades = queries.grades
        wrong = (grades < 0) | (grades > HIGHEST_GRADE) | (grades != np.floor(grades))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"LambdaMART needs whole grades from 0 to {HIGHEST_GRADE}, got {grades[row]} in query "
                f"{queries.qid[queries.query_of_row[row]].item()!r}: map the grades first, or use a linear learner"
            )

    def fit(
        self,
        queries: QuerySet,
        *,
        query_weight: ArrayLike | None = None,
        validation: QuerySet | None = None,
        start: LambdaMART | None = None,
    ) -> Self:
        """Fit on judged queries; with `validation` queries, record their NDCG@10 after each tree.

        With `start`, a fitted model, `n_trees` trees are added to its trees. LightGBM multiplies the gradient of each
        row by the row's weight, not that of each pair by both.
        """
        if self.model is not None:
            return self._set_text(read_trees(self.model).reading(queries.feature_names))
        self.check(queries)
        weight = queries.sample_weight
        if query_weight is not None:
            weight = queries.row_weights * np.repeat(check_query_weight(query_weight, len(queries)), queries.sizes)
        validation_rows = None
        if validation is not None:
            validation = validation.only_weighted()  # rows of unknown grade are not in the lists
            # LightGBM's NDCG keeps tied rows in their given order, and rows are often sorted by grade.
            shuffled = validation.take_rows(shuffle_within_queries(validation.offsets))
            validation_rows = {"data": shuffled.X, "label": shuffled.grades, "group": shuffled.sizes}
        return self._boost(
            "lambdarank",
            queries.X,
            queries.grades,
            validation=validation_rows,
            start=start,
            group=queries.sizes,
            weight=weight,
        )
