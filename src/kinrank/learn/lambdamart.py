"""LambdaMART, trained by LightGBM, and what it shares with boosted regression."""

from __future__ import annotations

import re
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float64, State
from kinrank.data.query_rows import shuffle_within_queries
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError, KinrankError, ParameterError
from kinrank.learn._forest import Forest, check_trees, read_trees
from kinrank.learn.base import Learner, check_query_weight
from kinrank.parallel import threads_for
from kinrank.registry import import_extra


def shares_of_gain(gain: NDArray[Any]) -> Float64:
    """Return importances that sum to 1, or zeros if no tree splits."""
    shares: Float64 = np.asarray(gain, dtype=np.float64) / (np.sum(gain) or 1.0)
    return shares


class BoosterMixin:
    """Mixin for models that are a LightGBM booster, ``booster_``. Needs ``pip install '.[lightgbm]'``."""

    allow_nan: ClassVar[bool] = True
    booster_: Any
    _forest: Forest | None = None  # built when it is needed

    def __init__(
        self,
        n_trees: int = 100,
        n_leaves: int = 31,
        learning_rate: float = 0.1,
        min_rows_in_leaf: int = 20,
        params: dict[str, Any] | None = None,
        n_threads: int = 0,
        seed: int = 0,
    ) -> None:
        self.n_trees = n_trees
        self.n_leaves = n_leaves
        self.learning_rate = learning_rate
        self.min_rows_in_leaf = min_rows_in_leaf
        self.params = params
        self.n_threads = n_threads
        self.seed = seed

    def _boost(
        self,
        objective: str,
        X: NDArray[Any],
        label: NDArray[Any],
        *,
        validation: dict[str, Any] | None = None,
        **data: Any,
    ) -> Self:
        """Train deterministically; record NDCG@10 on the validation rows after each tree."""
        lightgbm = import_extra("lightgbm", "lightgbm")
        settings = {
            "objective": objective,
            "num_leaves": self.n_leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_rows_in_leaf,
            "num_threads": self._threads(X),
            "seed": self.seed,
            "eval_at": [10],
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            **(self.params or {}),
        }
        rows = lightgbm.Dataset(np.asarray(X), label=label, params=settings, **data)
        options: dict[str, Any] = {}
        history: dict[str, dict[str, list[float]]] = {}
        if validation is not None:
            options |= {
                "valid_sets": [rows.create_valid(**validation)],
                "valid_names": ["validation"],
                "callbacks": [lightgbm.record_evaluation(history)],
            }
        try:
            self.booster_ = lightgbm.train(settings, rows, num_boost_round=self.n_trees, **options)
        except lightgbm.basic.LightGBMError as error:
            raise DataError(f"LightGBM rejects these data or settings: {error}") from error
        self._forest = None
        if validation is not None:
            self.validation_ndcg_ = np.array(history["validation"].get("ndcg@10", ()))
            if len(self.validation_ndcg_) != self.n_trees:
                raise ParameterError(f"params must leave metric, eval_at and early stopping out, got {self.params}")
        return self

    def _threads(self, X: NDArray[Any]) -> int:
        """Return the number of threads, by the size of the data unless it is set.

        LightGBM keeps it in a variable of the process, where 0 stands for "ask OpenMP": it crashes if one thread of
        Python changes that while another is in between reading it twice. So all say a number.
        """
        return self.n_threads or threads_for(np.asarray(X).size)

    def keep_trees(self, count: int) -> Self:
        """Use only the first `count` trees from now on."""
        self.booster_.best_iteration = count
        self._forest = None
        return self

    def predict(self, X: NDArray[Any]) -> Float64:
        """Return the sum of the trees' leaf values for each row."""
        if self._forest is None:
            self._forest = Forest.from_text(self.text)
        return self._forest.predict(X)

    @property
    def text(self) -> str:
        """The trees in use, in LightGBM's text format; how many threads trained them is left out."""
        text: str = self.booster_.model_to_string()
        return re.sub(r"\[num_threads: \d+\]", f"[num_threads: {self.n_threads}]", text)

    @property
    def n_trees_(self) -> int:
        """Number of trees in use."""
        return int(self.booster_.best_iteration if self.booster_.best_iteration > 0 else self.booster_.num_trees())

    @property
    def feature_importances_(self) -> Float64:
        """The share of each feature in the loss that the splits of all trees save."""
        return shares_of_gain(self.booster_.feature_importance("gain", iteration=self.n_trees_))

    def contributions(self, X: NDArray[Any]) -> Float64:
        """Return the SHAP values of each feature for each row; the last column is the expected score."""
        shares: Float64 = self.booster_.predict(np.asarray(X), pred_contrib=True, num_threads=self._threads(X))
        return shares

    def get_state(self) -> State:
        """Return the model in LightGBM's text format, as bytes."""
        return {"booster": np.frombuffer(self.text.encode(), dtype=np.uint8)}

    def set_state(self, state: State, *, trusted: bool = False) -> Self:
        """Restore the model from LightGBM's text format; `trusted` if this job has just made it, so needs no check."""
        return self._set_text(state["booster"].tobytes().decode(errors="replace"), trusted=trusted)

    def _set_text(self, text: str, *, trusted: bool = False) -> Self:
        lightgbm = import_extra("lightgbm", "lightgbm")
        try:
            self.booster_ = lightgbm.Booster(model_str=text if trusted else check_trees(text))
        except (lightgbm.basic.LightGBMError, ValueError) as error:
            if isinstance(error, KinrankError):
                raise
            raise DataError(f"LightGBM cannot read the trees ({error}): write the model again") from error
        self._forest = None
        return self


HIGHEST_GRADE = 30  # the last entry of LightGBM's default gain table


class LambdaMART(BoosterMixin, Learner):
    """Boosted trees on the LambdaRank objective (Burges 2010), trained by LightGBM; or trees that you have already.

    Needs ``pip install '.[lightgbm]'``. Grades must be whole numbers from 0 to 30. NaN features are allowed.

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
        have their features. See `kinrank.learn._forest.read_trees`.

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
    ) -> Self:
        """Fit on judged queries; with `validation` queries, record their NDCG@10 after each tree.

        LightGBM multiplies the gradient of each row by the row's weight, not that of each pair by both.
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
            group=queries.sizes,
            weight=weight,
        )
