"""The contract of a text encoder: texts in, one vector each out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Self

import numpy as np

from kinrank.arrays import Float32, State
from kinrank.errors import DataError, EncoderError

PROBE = "The quick brown fox: 12 größte Wälder, 東京 🎬"
"""Encoded when a model is saved and when it is loaded, to find out if the encoder is still the same."""

_SAME = 0.999  # cosine; builds of one model differ in the last digits


class Encoder(ABC):
    """Base of text encoders.

    A subclass implements `encode` and `spec`, and `fit`, `get_state` and `set_state` if it learns from texts.
    """

    @property
    @abstractmethod
    def spec(self) -> str:
        """The text from which `make_encoder` makes this encoder again."""

    @property
    def version(self) -> str:
        """The version of the library that encodes."""
        return ""

    @property
    def needs_consent(self) -> bool:
        """Whether a model folder may name this encoder only if the caller has allowed it."""
        return False

    @property
    def is_fitted(self) -> bool:
        """Whether the encoder can encode as it is."""
        return True

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Float32:
        """Return one vector per text, of unit length, or of zeros if nothing is known about the text."""

    def fit(self, texts: Sequence[str]) -> Self:  # noqa: ARG002
        """Learn from the texts of training queries; pretrained encoders learn nothing."""
        return self

    def __sklearn_clone__(self) -> Self:
        # Rankers fit a copy and never change what they were given, so their clones can share it.
        return self

    def get_state(self) -> State:
        """Return what identifies this encoder: its name, its version and the vector of a probe text."""
        return {
            "spec": np.array(self.spec),
            "version": np.array(self.version),
            "probe": self.encode([PROBE])[0],
        }

    def set_state(self, state: State) -> Self:
        """Check that this is the encoder that `get_state` described."""
        stored, now = np.asarray(state["probe"], dtype=np.float64), self.encode([PROBE])[0].astype(np.float64)
        if stored.shape != now.shape or _cosine(stored, now) < _SAME:
            raise EncoderError(
                f"the model was trained with encoder {state['spec'].item()!r} {state['version'].item()}, and "
                f"{self.spec!r} {self.version} encodes a probe text differently: use the encoder that the model was "
                "trained with, or train again"
            )
        return self


def normalized(vectors: Float32) -> Float32:
    """Return vectors scaled to unit length; zeros stay zeros."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units: Float32 = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return units


def check_vectors(vectors: object, n_texts: int, spec: str) -> Float32:
    """Return the vectors that an encoder returned as an array, or raise if they are not one vector per text."""
    try:
        array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise DataError(f"encoder {spec!r} must return one vector per text: {error}") from None
    if array.ndim != 2 or len(array) != n_texts or not np.isfinite(array).all():
        raise DataError(f"encoder {spec!r} must return an array of {n_texts} finite vectors, got shape {array.shape}")
    return normalized(array)


def _cosine(a: np.ndarray, b: np.ndarray) -> float:
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norms if norms > 0 else float(np.array_equal(a, b))
