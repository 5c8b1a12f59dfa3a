"""A model in use: its encoder, the judgments learned since it was fitted, and the tests that it passed."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from kinrank.arrays import Float32
from kinrank.data.queryset import QuerySet
from kinrank.data.texts import TEXT, VECTORS
from kinrank.errors import EncoderError, KinrankError, RejectedModelError
from kinrank.kin.encoders.guard import EncoderGuard
from kinrank.kin.spelling import Spellings
from kinrank.memory.evidence import Evidence
from kinrank.rankers import RANKERS
from kinrank.rankers._local.texts import text_encoder
from kinrank.rankers.base import Ranker
from kinrank.rankers.capabilities import can_adapt, can_explain, has_weights, takes_evidence
from kinrank.serve.messages import CandidateSet, Observer, to_query_set
from kinrank.store import Examples

if TYPE_CHECKING:
    from kinrank.engines import FeatureSet


REMEMBERED = 10_000
"""Vectors kept per model: repeated queries, which are most of the traffic, are not encoded again."""


class QueryEncoder:
    """Adds vectors to candidates whose query comes as text."""

    def __init__(self, ranker: Ranker) -> None:
        encoder = text_encoder(ranker)
        self.active = encoder is not None
        self.guard: EncoderGuard | None = getattr(ranker, "guard_", None)

        @lru_cache(maxsize=REMEMBERED)
        def encode(text: str) -> Float32:
            if encoder is None:
                raise EncoderError("the model does not encode texts")
            vector: Float32 = (self.guard or encoder).encode([text])[0]
            return vector

        self._encode = encode

    def __call__(self, candidates: CandidateSet, observer: Observer) -> CandidateSet:
        """Return the candidates with a vector, if the model needs one and the query has a text.

        If the encoder fails, for whatever reason, a model that finds kin by letters, too, gets a vector of zeros, and
        the observer the error; for others, raise `EncoderError`.
        """
        if not self.active or candidates.vector is not None or candidates.text is None:
            return candidates
        start = time.perf_counter()
        try:
            vector = self._encode(candidates.text)
        except EncoderError as error:
            if self.guard is None:
                raise
            observer.error("encode", error)
            vector = self.guard.zeros(1)[0]
        except Exception as error:  # an encoder is somebody else's code
            raise EncoderError(f"the encoder failed: {type(error).__name__}: {error}") from error
        observer.stage("encode", time.perf_counter() - start)
        return replace(candidates, vector=vector)


_MOST_SPELLED = 20_000  # judged queries whose spellings are known


def spellings_of(ranker: Ranker) -> Callable[[], Spellings]:
    """Return a function that makes the spellings of judged queries, once: it may take more than half a second."""
    return cache(lambda: Spellings(islice(ranker.names_.texts.all(), _MOST_SPELLED)))


FIT_SHARE = 0.1  # of the judged queries not seen by trees: then a fit is recommended


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model in use. It never changes, so a request keeps the model it started with."""

    fitted: str
    """The first digits of the manifest's SHA-256; identical folders have identical versions."""
    ranker: Ranker
    """The model with the judgments learned since it was fitted."""
    base: Ranker
    """The model as it was fitted."""
    tested: bool
    """Whether its folder had examples for the self-test."""
    encoder: QueryEncoder
    """Adds the vector of a query's text. It stays the same when judgments are learned, with what it remembers."""
    judgments: int = 0
    """Judged queries learned since it was fitted."""
    consolidated: int = 0
    """How many of those were learned when the ranker was last written to disk and read again."""
    revision: int | None = None
    """The revision of the judgment store that the ranker has learned; None if there is no store."""
    mark: str = ""
    """Identifies the history of the judgment store up to the revision."""
    evidence: int = 0
    """The revision of the choices that the ranker has; 0 if it has none."""
    evidence_mark: str = ""
    """Identifies the history of the choices up to the revision."""
    spellings: Callable[[], Spellings] = lambda: Spellings(())
    """Returns the judged queries by other spellings, of `spellings_of`."""

    @property
    def version(self) -> str:
        """What ranks: the fitted model, the judgments learned since, and the choices.

        The revision of the judgments follows a plus sign, that of the choices a tilde, and each has its mark: after
        restoring a copy of the database, numbers are used again.
        """
        learned = "" if self.revision is None else f"+{self.revision}{self.mark and '.' + self.mark}"
        chosen = f"~{self.evidence}{self.evidence_mark and '.' + self.evidence_mark}" if self.evidence else ""
        return f"{self.fitted}{learned}{chosen}"

    @cached_property
    def choices(self) -> Any | None:
        """The ranker if it knows what choices mean, which takes too long to find out for each query; else None."""
        return self.ranker if takes_evidence(self.ranker) and self.ranker.chosen_ is not None else None

    @property
    def ranker_name(self) -> str:
        """The registered name of the ranker."""
        return RANKERS.name_of(type(self.ranker))

    @property
    def judged_queries(self) -> int | None:
        """The number of judged queries that the model holds; None if it does not keep them."""
        return self.ranker.n_judged_ if can_adapt(self.ranker) else None

    @property
    def unseen_judgments(self) -> int:
        """The number of judged queries that a part of the model learns from only with the next fit."""
        return self.ranker.n_unseen_ if can_adapt(self.ranker) else 0

    @property
    def fit_recommended(self) -> bool:
        """Whether enough judged queries await a new fit."""
        return self.unseen_judgments >= FIT_SHARE * (self.judged_queries or math.inf)


class Follower:
    """Follows what is stored for one model."""

    what: ClassVar[str]
    """What is followed."""

    def __init__(self, name: str, observer: Observer) -> None:
        self._name = name
        self._observer = observer
        self.failure: str | None = None
        """Why it could not be learned the last time; None if it was."""

    def _report(self, served: ServedModel, error: Exception) -> None:
        """Report a failure, once until it ends or changes."""
        failure = f"{self.what} were not learned: {error}"
        if failure != self.failure:
            self._observer.model(self._name, served.fitted, "learn-failed", failure)
            if not isinstance(error, KinrankError | OSError):
                self._observer.error("learn", error)
        self.failure = failure


_TOLERANCE = 1e-3  # in standard deviations of the scores: float32 sums differ that little between machines
_LATE = 100_000  # a day after those of any evidence


def self_test(ranker: Ranker, examples: Examples | None, deadline: float) -> bool:
    """Rank the stored examples. Return False if there are none.

    Raise `RejectedModelError` if an example fails, its scores differ, or the median query takes longer than the
    deadline, possibly because the machine is busy.
    """
    if examples is None:
        return False
    queries, expected = examples
    try:
        scores = ranker.predict_with_novelty(queries).scores
        median = statistics.median(_time(ranker, query) for query in queries)
    except KinrankError as error:
        raise RejectedModelError(f"the model cannot rank its stored examples: {error}") from error
    if not np.allclose(scores, expected, rtol=0, atol=_TOLERANCE * max(float(np.std(expected)), 1e-9)):
        worst = int(np.argmax(np.abs(scores - expected)))
        raise RejectedModelError(
            f"the model does not reproduce the scores of its stored examples: {scores[worst]:.6g} instead of "
            f"{expected[worst]:.6g}; train it again with the versions installed here"
        )
    if median > deadline:
        raise RejectedModelError(
            f"the model takes {median * 1000:.1f} ms per query, the deadline is {deadline * 1000:.1f} ms",
            temporary=True,
        )
    return True


def search_test(ranker: Ranker, encoder: QueryEncoder, features: FeatureSet) -> None:
    """Raise `RejectedModelError` if the model cannot rank what searches with an attached engine pass to it.

    Without this test, every search would fall back to the engine's order.
    """
    if different := [name for name in ranker.feature_names_ if name not in features.names]:
        raise RejectedModelError(
            f"the model has features that the engine does not compute: {', '.join(different[:5])}; train the model on "
            "features that this engine logged"
        )
    features = features.only(ranker.feature_names_)
    if features.compares_vectors:  # of which length, only requests know
        return
    rows = np.zeros((2, len(features.names)), dtype=np.float32)
    candidates = CandidateSet(["a", "b"], rows, features.names, text="query")
    try:
        encoded = encoder(candidates, Observer())
        ranker.predict(to_query_set([encoded], [encoded.align(ranker.feature_names_)], ranker.feature_names_))
    except KinrankError as error:
        raise RejectedModelError(f"the model cannot rank what the attached engine finds: {error}") from error


def warm_up(ranker: Ranker, examples: Examples | None) -> None:
    """Rank, weigh and explain a query as requests pass it, so that the first request finds all code compiled.

    Compiled code differs for arrays that can be written to, as JSON gives them, and those that cannot, as MessagePack
    does, and for evidence that was read and evidence that grew. A model that needs more than the examples have, such as
    a vector, is left as it is.
    """
    names = ranker.feature_names_
    if examples is None:
        query = CandidateSet(["0", "1"], np.zeros((2, len(names)), dtype=np.float32), names)
    else:
        query = example_candidates(examples[0], 0)
    rankers = [ranker]
    if takes_evidence(ranker):
        text, seen = query.text or "query", np.ones(len(query.ids))
        query = replace(query, text=text)
        evidence = Evidence.from_cells([text] * len(query.ids), query.ids, seen, seen, _LATE)
        rankers.append(ranker.with_recent(evidence))
    rows = query.features
    frozen = np.frombuffer(rows.tobytes(), dtype=np.float32).reshape(rows.shape)
    for features in (rows, frozen):
        queries = to_query_set([query], [features], names)
        with suppress(KinrankError):
            for each in rankers:
                each.predict_with_novelty(queries)
            if has_weights(ranker):
                ranker.weights_with_fidelity(queries)
            if can_explain(ranker):
                ranker.explain(queries)


def example_candidates(queries: QuerySet, position: int) -> CandidateSet:
    """Return a stored query as a request would pass it."""
    query = queries[position : position + 1]
    given = {name: column[0] for name, column in query.query_columns.items()}
    text, vector = given.pop(TEXT, None), given.pop(VECTORS, None)
    columns = {name: float(value) for name, value in given.items() if np.asarray(value).dtype.kind in "iuf"}
    ids = range(query.n_rows) if query.doc_id is None else query.doc_id.tolist()
    return CandidateSet(
        [str(each) for each in ids],
        np.array(query.X),
        query.feature_names,
        vector,
        columns,
        None if text is None else str(text),
        {name: values.astype(np.str_).tolist() for name, values in query.doc_columns.items()},
    )


def _time(ranker: Ranker, query: QuerySet) -> float:
    start = time.perf_counter()
    ranker.predict_with_novelty(query)
    return time.perf_counter() - start
