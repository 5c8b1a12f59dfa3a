"""The contract of a search engine: candidates, their features, and ranking by per-query weights in the request.

Calls are synchronous, thread-safe and bounded: each takes a `timeout` in seconds and either answers within about that
time or raises a `kinrank.errors.EngineError`. A caller with a deadline passes what is left of it; a caller with an
event loop runs the call in a thread.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kinrank.arrays import Float32
from kinrank.engines.feature_set import FeatureSet
from kinrank.errors import EngineTimeoutError

Document = tuple[str, Mapping[str, Any]]
"""The id of a document and its fields."""


@dataclass(frozen=True, eq=False)
class Hits:
    """Documents that an engine found, best first.

    Attributes
    ----------
    doc_id : array of text
        In the engine's order.
    score : float64 array
        The engine's scores; they compare within one answer only.

    Examples
    --------
    >>> hits = Hits(np.array(["d7", "d3"]), np.array([4.5, 1.0]))
    >>> len(hits), hits.doc_id.tolist()
    (2, ['d7', 'd3'])
    """

    doc_id: NDArray[np.str_]
    score: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.doc_id)


@dataclass(frozen=True, eq=False)
class LoggedFeatures:
    """Features of documents as an engine computes them.

    Attributes
    ----------
    values : float32 array of shape (documents, features)
        NaN where a feature is missing by its definition, and in all of a document that is not in the index.
    found : bool array of shape (documents,)
        Which documents are in the index.
    """

    values: Float32
    found: NDArray[np.bool_]


@dataclass(frozen=True)
class Health:
    """How an engine is.

    Attributes
    ----------
    engine : str
        Its name and version: "elasticsearch 8.12.2".
    status : {"green", "yellow", "red"}
        Green: all is well; yellow: all of the index answers, without a spare copy; red: some of it does not.
    nodes : int
        How many nodes there are.
    documents : int
        How many documents the index has.
    """

    engine: str
    status: str
    nodes: int
    documents: int


class Engine(ABC):
    """Base of all engines: one index of a search engine, and the features that are asked of it.

    Attributes
    ----------
    feature_names : tuple of str
        One per column of `features` and per number of `apply`'s weights.
    feature_set : FeatureSet, optional
        The definitions of the features, if they come from a feature file.
    apply_params : mapping of str to str
        Parameters of the URL that belong to the body of `apply_request`: without them the order may be another.

    Notes
    -----
    An engine is a context manager; `close` gives its connections back.
    """

    feature_names: tuple[str, ...]
    feature_set: FeatureSet | None = None
    apply_params: ClassVar[Mapping[str, str]] = {}

    # --- what an engine implements ------------------------------------------------------------------------------

    @abstractmethod
    def search(self, query: str, *, size: int, vector: ArrayLike | None = None, timeout: float | None = None) -> Hits:
        """Candidates of a query, by the engine's own ranking.

        Parameters
        ----------
        query
            What the user typed.
        size
            How many at most.
        vector
            The embedding of the query, for engines and features that compare vectors.
        timeout
            Seconds to wait for the answer; the engine's own setting where not given.
        """

    @abstractmethod
    def log(
        self, query: str, doc_ids: Sequence[str], *, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> LoggedFeatures:
        """The features of given documents for a query, and which of the documents there are."""

    @abstractmethod
    def apply_request(
        self,
        query: str,
        weights: ArrayLike,
        *,
        size: int,
        vector: ArrayLike | None = None,
        doc_ids: Sequence[str] | None = None,
        window: int | None = None,
    ) -> dict[str, Any]:
        """The body of the request that `apply` sends, for a caller who sends it himself, with `apply_params`.

        Asks the engine nothing.
        """

    @abstractmethod
    def apply(
        self,
        query: str,
        weights: ArrayLike,
        *,
        size: int,
        vector: ArrayLike | None = None,
        doc_ids: Sequence[str] | None = None,
        window: int | None = None,
        timeout: float | None = None,
    ) -> Hits:
        """Search with this query's weights in the request: the engine ranks by ``features @ weights``.

        Parameters
        ----------
        query, size, vector, timeout
            As in `search`.
        weights
            One per feature, for features as `features` returns them, as `Ranker.weights` gives them. A missing feature
            counts as 0.
        doc_ids
            Rank only these documents; without it, those that `search` would find.
        window
            Rank only the first so many documents of `search`; all that match where not given. An engine may count
            them per shard, and rank more.

        Returns
        -------
        Hits
            In the order of ``features @ weights``. Scores rise with it, and mean nothing else.
        """

    @abstractmethod
    def index(self, documents: Iterable[Document], *, settings: Mapping[str, Any] | None = None) -> int:
        """Write documents, creating the index with `settings` where it is not there, and return how many were written.

        For tests and demonstrations. When it returns, the documents can be found.
        """

    @abstractmethod
    def health(self) -> Health:
        """How the engine is; an `EngineUnreachableError` where no node answers, a `MissingIndexError` without index."""

    @abstractmethod
    def close(self) -> None:
        """Give the connections back."""

    # --- what everyone has --------------------------------------------------------------------------------------

    def features(
        self, query: str, doc_ids: Sequence[str], *, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> Float32:
        """The features of given documents for a query.

        Returns
        -------
        float32 array of shape (documents, features)
            In the order of `doc_ids`; NaN where a feature is missing by its definition, and in all of a document that
            is not in the index (`log` tells the two apart).
        """
        return self.log(query, doc_ids, vector=vector, timeout=timeout).values

    def identity(self) -> dict[str, str]:
        """What tells this index from any other; a long log that is taken up again compares it."""
        return {"engine": type(self).__name__}

    def search_complete(
        self, query: str, *, size: int, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> Hits:
        """As `search`, but an error where only a part of the index answers: for what is kept, not shown."""
        return self.search(query, size=size, vector=vector, timeout=timeout)

    def search_features(
        self, query: str, *, size: int, vector: ArrayLike | None = None, timeout: float | None = None
    ) -> tuple[Hits, Float32]:
        """Candidates of a query and their features, within `timeout` together; one request where the engine can."""
        start = time.monotonic()
        hits = self.search(query, size=size, vector=vector, timeout=timeout)
        left = None if timeout is None else timeout - (time.monotonic() - start)
        if left is not None and left <= 0:
            raise EngineTimeoutError(f"no time left for features after {timeout:g} s of search; allow more")
        return hits, self.features(query, hits.doc_id.tolist(), vector=vector, timeout=left)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
