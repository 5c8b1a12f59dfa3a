"""LambdaMART through LightGBM: the strongest global ranker, and what people run today."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.learn.base import Float64, Learner, State
from kinrank.registry import import_extra

_HIGHEST_GRADE = 30  # LightGBM's own table of gains ends there


class LambdaMART(Learner):
    """Boosted trees on the LambdaRank objective (Burges 2010), trained by LightGBM.

    Needs ``pip install 'kinrank[lightgbm]'``. Grades must be whole numbers from 0 to 30. Missing features are read
    as they are.

    Parameters
    ----------
    n_trees, n_leaves, learning_rate, min_rows_in_leaf
        LightGBM's ``num_iterations``, ``num_leaves``, ``learning_rate`` and ``min_data_in_leaf``, with its defaults.
    params : dict, optional
        Further parameters, in LightGBM's own words.
    n_threads : int
        0 leaves the choice to OpenMP.
    seed : int
        Training is deterministic for a given seed.

    Attributes
    ----------
    booster_ : lightgbm.Booster

    Examples
    --------
    >>> X, y = np.tile(np.arange(9.0), 10)[:, None], np.tile(np.arange(9) // 3, 10)
    >>> queries = QuerySet.from_arrays(X, y, group=[9] * 10)
    >>> model = LambdaMART(n_trees=5).fit(queries)
    >>> scores = model.predict(np.array([[0.0], [8.0]]))
    >>> bool(scores[1] > scores[0])
    True
    """

    reads_missing: ClassVar[bool] = True

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

    def fit(self, queries: QuerySet, *, query_weight: ArrayLike | None = None) -> Self:
        """Learn."""
        lightgbm = import_extra("lightgbm", "lightgbm")
        grades = queries.grades
        wrong = (grades < 0) | (grades > _HIGHEST_GRADE) | (grades != np.floor(grades))
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(
                f"LambdaMART needs whole grades from 0 to {_HIGHEST_GRADE}, got {grades[row]} in query "
                f"{queries.qid[queries.query_of_row[row]].item()!r}: map the grades first, or use a linear learner"
            )
        weight = None if query_weight is None else np.repeat(np.asarray(query_weight, dtype=np.float64), queries.sizes)
        data = lightgbm.Dataset(queries.X, label=grades, group=queries.sizes, weight=weight, params={"verbosity": -1})
        settings = {
            "objective": "lambdarank",
            "num_leaves": self.n_leaves,
            "learning_rate": self.learning_rate,
            "min_data_in_leaf": self.min_rows_in_leaf,
            "num_threads": self.n_threads,
            "seed": self.seed,
            "deterministic": True,
            "force_row_wise": True,
            "verbosity": -1,
            **(self.params or {}),
        }
        self.booster_ = lightgbm.train(settings, data, num_boost_round=self.n_trees)
        return self

    def predict(self, X: NDArray[Any]) -> Float64:
        """The sum of the trees' leaves."""
        scores: Float64 = self.booster_.predict(np.asarray(X), num_threads=self.n_threads)
        return scores

    def get_state(self) -> State:
        """LightGBM's own text form of the model."""
        return {"booster": np.frombuffer(self.booster_.model_to_string().encode(), dtype=np.uint8)}

    def set_state(self, state: State) -> Self:
        """Read LightGBM's text form back."""
        lightgbm = import_extra("lightgbm", "lightgbm")
        self.booster_ = lightgbm.Booster(model_str=state["booster"].tobytes().decode())
        return self
