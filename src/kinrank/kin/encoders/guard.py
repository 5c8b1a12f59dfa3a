"""Rank on while an encoder is down or slow: queries then have vectors of zeros, which are like nothing."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Sequence

import numpy as np

from kinrank.arrays import Float32
from kinrank.errors import EncoderError
from kinrank.kin.encoders.base import PROBE, Encoder

_FIRST, _EACH = 1.0, 0.25  # seconds for a request, and for each of its texts
_PAUSE = 5.0  # seconds without another try after a failure


class EncoderGuard:
    """Encodes the texts of queries to rank, and gives up on an encoder that fails or takes too long for some seconds.

    Attributes
    ----------
    failures
        How many texts have not been encoded.
    width
        The length of a vector; 0 until the first one came.

    Examples
    --------
    >>> from kinrank.kin.encoders import make_encoder
    >>> guard = EncoderGuard(make_encoder(lambda texts: [[3.0, 4.0]] * len(texts)), width=2)
    >>> guard.encode_or_zeros(["cat", "dog"]).astype(float).round(1).tolist(), guard.failures
    ([[0.6, 0.8], [0.6, 0.8]], 0)
    """

    def __init__(self, encoder: Encoder, width: int = 0) -> None:
        self.encoder = encoder
        self.width = width
        self.failures = 0
        self._next_try = 0.0

    def probe(self) -> Float32 | None:
        """Return the vector of a probe text, however long it takes; None, with a warning, if the encoder fails."""
        try:
            found = self.encoder.encode([PROBE])
        except Exception as error:  # an encoder is somebody else's code
            self._next_try = time.monotonic() + _PAUSE
            failed = self._failed([PROBE], f"{type(error).__name__}: {error}")
            warnings.warn(f"{failed}; kin are found by letters only", RuntimeWarning, stacklevel=2)
            return None
        self.width = found.shape[1]
        vector: Float32 = found[0]
        return vector

    def encode(self, texts: Sequence[str]) -> Float32:
        """Return one vector per text, or raise `EncoderError` if they do not come in time."""
        if time.monotonic() < self._next_try:
            raise self._failed(texts, f"it failed before, and is tried again within {_PAUSE:g} s")
        found: list[Float32] = []
        errors: list[Exception] = []

        def run() -> None:
            try:
                found.append(self.encoder.encode(texts))
            except Exception as error:  # an encoder is somebody else's code
                errors.append(error)

        seconds = _FIRST + _EACH * len(texts)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(seconds)
        if found and self.width in (0, found[0].shape[1]):
            self.width = found[0].shape[1]
            return found[0]
        self._next_try = time.monotonic() + _PAUSE
        if found:
            raise self._failed(texts, f"it returned vectors of {found[0].shape[1]} numbers, not {self.width}")
        reason = f"{type(errors[0]).__name__}: {errors[0]}" if errors else f"no answer within {seconds:g} s"
        raise self._failed(texts, reason)

    def encode_or_zeros(self, texts: Sequence[str]) -> Float32:
        """Return one vector per text; zeros, with a warning, if they do not come in time."""
        waits = time.monotonic() < self._next_try
        try:
            return self.encode(texts)
        except EncoderError as error:
            if not waits:
                warnings.warn(f"{error}; kin are found by letters only", RuntimeWarning, stacklevel=2)
            return self.zeros(len(texts))

    def zeros(self, n_texts: int) -> Float32:
        """Return the vectors of texts about which nothing is known."""
        return np.zeros((n_texts, self.width), dtype=np.float32)

    def _failed(self, texts: Sequence[str], reason: str) -> EncoderError:
        self.failures += len(texts)
        return EncoderError(f"encoder {self.encoder.spec!r} failed: {reason}")
