"""Query texts as vectors, for models that encode them; recent ones are remembered."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import lru_cache

from kinrank.arrays import Float32
from kinrank.errors import EncoderError
from kinrank.rankers.base import Ranker
from kinrank.rankers.local.texts import text_encoder
from kinrank.serve.messages import CandidateSet
from kinrank.serve.observer import Observer

REMEMBERED = 10_000
"""Vectors kept per model: repeated queries, which are most of the traffic, are not encoded again."""


class QueryEncoder:
    """Adds vectors to candidates whose query comes as text.

    Parameters
    ----------
    ranker
        The model. If it does not encode texts, candidates stay as they are.
    """

    def __init__(self, ranker: Ranker) -> None:
        encoder = text_encoder(ranker)
        self.active = encoder is not None

        @lru_cache(maxsize=REMEMBERED)
        def encode(text: str) -> Float32:
            if encoder is None:
                raise EncoderError("the model does not encode texts")
            vector: Float32 = encoder.encode([text])[0]
            return vector

        self._encode = encode

    def __call__(self, candidates: CandidateSet, observer: Observer) -> CandidateSet:
        """Return the candidates with a vector, if the model needs one and the query has a text.

        Raises
        ------
        EncoderError
            The encoder failed, for whatever reason.
        """
        if not self.active or candidates.vector is not None or candidates.text is None:
            return candidates
        start = time.perf_counter()
        try:
            vector = self._encode(candidates.text)
        except EncoderError:
            raise
        except Exception as error:  # an encoder is somebody else's code
            raise EncoderError(f"the encoder failed: {type(error).__name__}: {error}") from error
        observer.stage("encode", time.perf_counter() - start)
        return replace(candidates, vector=vector)
