"""The contract of a ranker: judged queries in, scores in the caller's row order out."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from kinrank.arrays import Float64, State
from kinrank.data.hashes import IdHashes, hash_ids
from kinrank.data.normalization import Normalization, normalization_of
from kinrank.data.queryset import QuerySet
from kinrank.errors import DataError
from kinrank.kin import DESCRIBERS
from kinrank.kin.encoders import EncoderSpec, check_encoders, make_encoder
from kinrank.kin.indexes import INDEXES
from kinrank.learn import LEARNERS
from kinrank.learn._prepare import Missing, Scale
from kinrank.measure import NDCG
from kinrank.rankers._names import Names
from kinrank.rankers.capabilities import Capabilities
from kinrank.rankers.intake import JudgedArrays, QueryArrays, feature_difference, read_queries, takes_arrays
from kinrank.rankers.registry import RANKERS, REGRESSORS
from kinrank.store import ModelRecord, decode, encode, read_model, write_model
from kinrank.version import __version__

PARTS = (RANKERS, LEARNERS, REGRESSORS, DESCRIBERS, INDEXES)
"""The registries of what settings may hold."""

# --- linear weights of queries, and how well they reproduce a ranker that is not linear -------------------------------


@dataclass(frozen=True, eq=False)
class LinearWeights:
    """One weight vector per query."""

    weights: Float64
    """For features as they were given; shape (queries, features)."""
    fidelity: Float64 | None = None
    """Kendall's τ between the ranker's scores of the given candidates and their weighted sums: 1 if both rank alike.
    None if the ranker is linear, so that the weights reproduce it exactly; shape (queries,).
    """


def exact_weights(queries: QuerySet, weights: Float64, missing: Missing) -> LinearWeights:
    """Return the weights of a linear ranker; raise if a missing feature is filled, which a weighted sum cannot do."""
    if missing == "mean":
        _check_not_filled(queries, weights)
    return LinearWeights(weights)


def _check_not_filled(queries: QuerySet, weights: Float64) -> None:
    """Raise if a feature with a weight is missing in some candidates of a query but not in others."""
    if not len(queries) or not np.isnan(queries.X).any():
        return
    share = np.add.reduceat(np.isnan(queries.X), queries.offsets[:-1], axis=0, dtype=np.int64) / queries.sizes[:, None]
    filled = (share > 0) & (share < 1) & (weights != 0)
    if filled.any():
        query, feature = np.argwhere(filled)[0]
        raise DataError(
            f"feature {queries.feature_names[feature]!r} is missing (NaN) in some candidates of query "
            f"{queries.qid[query].item()!r}. This ranker fills in the mean, but in a weighted sum the feature counts "
            "0. Fit with missing='zero' (--set missing=zero on the command line), or give all candidates the feature"
        )


# --- the contract -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Prediction:
    """Scores of candidates, and how new their queries are."""

    scores: Float64
    """As returned by `Ranker.predict`; shape (rows,)."""
    novelty: Float64 | None = None
    """The distance to the nearest judged query. 1.0 is the distance within which 99% of the judged queries have their
    nearest other one. None if the ranker knows no distance between queries; shape (queries,).
    """


class Ranker(BaseEstimator, ABC):
    """Base of all rankers.

    A ranker implements `_fit`, `_predict`, `get_state` and `set_state` on grouped, checked `QuerySet`s, and declares
    its capabilities. Input in any row order, scikit-learn's conventions and saving are here.

    Wherever X is accepted it may be a `QuerySet`. Then everything else is read from it, and scores come back in its
    row order.

    Attributes
    ----------
    feature_names_ : tuple of str
        The features of `fit`, in order.
    n_features_in_ : int
        How many there are.
    """

    _capabilities: ClassVar[Capabilities] = Capabilities()

    feature_names_: tuple[str, ...]
    n_features_in_: int
    learned_from_: IdHashes | None = None  # of the training queries
    judgments_through_: int | None = None  # revision of the live judgments that were learned
    names_: Names = Names()  # by which explanations name queries and documents

    @property
    def capabilities(self) -> Capabilities:
        """What this ranker can do with its current settings."""
        return self._capabilities

    @property
    def normalization(self) -> Normalization | None:
        """How features are normalized within their query before the weights apply; None for features as given."""
        return None

    @abstractmethod
    def _fit(self, queries: QuerySet) -> None:
        """Learn from judged queries."""

    @abstractmethod
    def _predict(self, queries: QuerySet) -> Float64:
        """Score the candidates of each query."""

    def _predict_with_novelty(self, queries: QuerySet) -> Prediction:
        return Prediction(self._predict(queries))

    def remarks(self) -> list[str]:
        """Return what fitting found out that is worth printing after training."""
        return []

    def check_features(self, names: tuple[str, ...]) -> None:
        """Raise `DataError` unless these are the features of `fit`, in the same order."""
        if names != self.feature_names_:
            raise DataError(feature_difference(self.feature_names_, names))

    def _queries(
        self,
        X: ArrayLike | QuerySet,
        y: ArrayLike | None = None,
        *,
        fitting: bool = False,
        **arrays: Unpack[JudgedArrays],
    ) -> QuerySet:
        """Return the input of a public method as a checked query set."""
        if not fitting and "feature_names_" not in vars(self):  # looks first: scikit-learn's check takes its time
            check_is_fitted(self)
        return read_queries(self, X, y, fitting=fitting, **arrays)

    @takes_arrays
    def fit(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> Self:
        """Learn from judged queries.

        Parameters
        ----------
        X
            Features, one row per candidate, or a `QuerySet`.
        y
            Grades, one per row. Higher is better.
        arrays
            The query of each row, and what is known of queries and judgments: qid, group, query_vectors, query_text
            and sample_weight; see `kinrank.rankers.intake.JudgedArrays`.
        """
        queries = self._queries(X, y, fitting=True, **arrays)
        self._fit(queries)
        self._remember(queries)
        if self.capabilities.explains:
            self.names_ = Names().added(queries)
        return self

    @takes_arrays
    def predict(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> Float64:
        """Score candidates. Without qid and group all rows are candidates of one query.

        Returns
        -------
        float64 array of shape (rows,)
            In the caller's row order. Only differences within one query are meaningful.
        """
        queries = self._queries(X, **arrays)
        return queries.in_caller_order(self._predict(queries))

    def predict_with_novelty(self, queries: QuerySet) -> Prediction:
        """Score grouped queries and measure in the same pass how new they are; made for a service.

        Only the feature names are checked. On a single query the other checks are most of what `predict` costs.
        """
        self.check_features(queries.feature_names)
        return self._predict_with_novelty(queries)

    @takes_arrays
    def score(self, X: ArrayLike | QuerySet, y: ArrayLike | None = None, **arrays: Unpack[JudgedArrays]) -> float:
        """Return the mean NDCG@10 (`kinrank.measure.NDCG` with its standard conventions).

        Without qid and group all rows are one query, which is seldom meant, so there is a warning. In scikit-learn's
        searches, request qid with ``set_fit_request(qid=True).set_score_request(qid=True)``.
        """
        queries = self._queries(X, y, **arrays)
        scores = self._predict(queries)
        return (NDCG @ 10).mean(scores, queries.grades, queries.offsets, sample_weight=queries.sample_weight)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = getattr(self, "missing", "error") != "error"
        return tags

    @abstractmethod
    def get_state(self) -> State:
        """Return the fitted ranker as plain arrays."""

    @abstractmethod
    def set_state(self, state: State) -> Self:
        """Restore a fitted ranker from the arrays of `get_state`."""

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        examples: QuerySet | None = None,
        judgments_through: int | None = None,
    ) -> None:
        """Write the fitted ranker as a folder that `kinrank.load` reads.

        Parameters
        ----------
        path
            The folder. An existing model is replaced.
        examples
            A few queries to keep in the folder with their scores. Before a service uses the model, it ranks them and
            rejects the model if the scores differ.
        judgments_through
            The revision of the service's judgments that the training queries contain. A service learns only later
            ones, so nothing is learned twice, and judgments that you left out stay out.
        """
        check_is_fitted(self)
        through = self.judgments_through_ if judgments_through is None else judgments_through
        params = encode(self.storable_params(Path(path)), PARTS)
        name = RANKERS.name_of(type(self))
        names = self.names_.get_state(self._kin_ids())
        record = ModelRecord(
            name, params, self.feature_names_, __version__, self.get_state(), self.learned_from_, through, names
        )
        write_model(path, record, None if examples is None else (examples, self.predict(examples)))

    @classmethod
    def from_record(cls, record: ModelRecord, **changed: Any) -> Self:
        """Return the fitted ranker that `save` wrote, with some parameters changed."""
        ranker = cls(**{**decode(record.params, PARTS), **changed})
        ranker.feature_names_ = record.feature_names
        ranker.n_features_in_ = len(record.feature_names)
        ranker.learned_from_, ranker.judgments_through_ = record.learned_from, record.judgments_through
        ranker.names_ = Names.from_state(record.names)
        return ranker.set_state(record.arrays)

    def copy(self) -> Self:
        """Return a fitted copy that shares the learned arrays; what it learns later, it learns alone."""
        check_is_fitted(self)
        other: Self = clone(self)
        settings = self.get_params(deep=False)
        other.__dict__.update({name: value for name, value in self.__dict__.items() if name not in settings})
        return other

    def storable_params(self, folder: Path | None = None) -> dict[str, Any]:  # noqa: ARG002
        """Return the parameters as a model folder can hold them: an encoder by its name, a path from the folder."""
        params: dict[str, Any] = self.get_params(deep=False)
        encoder = params.get("encoder")
        if encoder is not None and not isinstance(encoder, str):
            params["encoder"] = make_encoder(encoder).spec
        return params

    def learned_from(self, queries: QuerySet) -> NDArray[np.bool_] | None:
        """Return which of these queries, by id, were training queries; None if that is unknown."""
        check_is_fitted(self)
        return None if self.learned_from_ is None else np.isin(hash_ids(queries.qid), self.learned_from_)

    def _kin_ids(self) -> NDArray[Any] | None:
        """Return the judged queries that explanations name, whose texts are saved; None if there are none."""
        return None

    def _remember(self, queries: QuerySet) -> None:
        """Keep what `learned_from` needs, after fitting."""
        self.learned_from_ = hash_ids(queries.qid)


class WeightedRanker(ABC):
    """Mixin of rankers with linear weights for each query; stands before `Ranker` among the bases."""

    scale: Scale = "none"

    if TYPE_CHECKING:  # of Ranker
        _queries: Callable[..., QuerySet]
        check_features: Callable[[tuple[str, ...]], None]

    @property
    def normalization(self) -> Normalization | None:
        """How features are normalized within their query before the weights apply; None for features as given."""
        return normalization_of(self.scale)

    @abstractmethod
    def _query_weights(self, queries: QuerySet) -> LinearWeights:
        """Return the weights of each query, for features as they were given, or as normalized in their query."""

    @takes_arrays
    def weights(self, X: ArrayLike | QuerySet, **arrays: Unpack[QueryArrays]) -> Float64:
        """Return one weight vector per query, for features as they were given (not as scaled).

        If the ranker normalizes features within each query (`normalization`), the weights are for normalized features.

        Returns
        -------
        float64 array of shape (queries, features)
            Queries in order of first appearance. For a linear ranker, ranking by ``X @ weights``, with 0 for a missing
            feature, equals ranking by `predict`. Candidates for which that does not hold, because ``missing="mean"``
            fills them, raise `DataError`. For other rankers `weights_with_fidelity` measures how close it comes.
        """
        return self._query_weights(self._queries(X, **arrays)).weights

    def weights_with_fidelity(self, queries: QuerySet) -> LinearWeights:
        """Return the weights of grouped queries, and how well they reproduce the ranking; made for a service.

        Only the feature names are checked, as in `predict_with_novelty`.
        """
        self.check_features(queries.feature_names)
        return self._query_weights(queries)


def load(
    path: str | os.PathLike[str], *, encoder: EncoderSpec | None = None, allow_encoders: Collection[str] = ()
) -> Ranker:
    """Load a ranker that `Ranker.save` wrote. Its arrays are memory-mapped.

    Parameters
    ----------
    path
        The model folder.
    encoder
        The text encoder, if the ranker was trained with one that has no name, such as an object or a function.
        Another encoder than that of training raises `kinrank.errors.EncoderError`.
    allow_encoders
        Encoders of libraries, such as ``"sentence-transformers:NAME"``, that the folder may name, besides those in
        the environment variable ``KINRANK_ENCODERS``. Others raise, because such a library may run code of the model
        that it loads.

    Raises
    ------
    kinrank.errors.StoreError
        If the folder is not a model, comes from a newer kinrank, or has changed since it was written.
    """
    return from_record(read_model(path), encoder=encoder, allow_encoders=allow_encoders)


def from_record(
    record: ModelRecord, *, encoder: EncoderSpec | None = None, allow_encoders: Collection[str] = ()
) -> Ranker:
    """Return the fitted ranker of a model folder; see `load`."""
    changed = {} if encoder is None else {"encoder": encoder}
    check_encoders({name: value for name, value in record.params.items() if name not in changed}, allow_encoders)
    ranker: Ranker = RANKERS[record.ranker].from_record(record, **changed)
    return ranker
