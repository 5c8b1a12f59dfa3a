"""An encoder behind an address that speaks the embeddings format of OpenAI: Ollama, vLLM, TEI and many others."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Sequence
from http.client import HTTPException
from typing import Self
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import numpy as np

from kinrank.arrays import Float32, State
from kinrank.errors import DataError, EncoderError, ParameterError
from kinrank.kin.encoders.base import PROBE, Encoder, check_vectors

KEY = "KINRANK_ENCODER_KEY"
"""Environment variable with the key that requests carry, if the address asks for one."""
_AT_ONCE = 128  # texts in a request
_SECONDS = 60.0


class AddressEncoder(Encoder):
    """A model behind an address: ``openai:http://localhost:11434/v1#nomic-embed-text``.

    Texts are posted to ``/embeddings`` below the address. The key of the environment variable ``KINRANK_ENCODER_KEY``
    goes with them.

    Parameters
    ----------
    address
        The address up to ``/v1``, then ``#`` and the name of the model.
    """

    def __init__(self, address: str) -> None:
        base, _, model = address.partition("#")
        parts = urlsplit(base)
        if parts.scheme not in ("http", "https") or not parts.hostname or not model:
            raise ParameterError(f"an encoder's address is openai:http://HOST/v1#MODEL, got {f'openai:{address}'!r}")
        self.address = address
        self._stored: State | None = None  # what is still to be compared

    @property
    def spec(self) -> str:
        """The text from which `make_encoder` makes this encoder again."""
        return f"openai:{self.address}"

    @property
    def needs_consent(self) -> bool:
        """Texts of queries would be sent to wherever a model folder says."""
        return True

    def encode(self, texts: Sequence[str]) -> Float32:
        """Return one vector per text."""
        if self._stored is not None:
            stored, self._stored = self._stored, None
            try:
                super().set_state(stored)
            except EncoderError:
                self._stored = stored
                raise
        parts = [self._encode(list(texts[start : start + _AT_ONCE])) for start in range(0, len(texts), _AT_ONCE)]
        return np.concatenate(parts) if parts else np.empty((0, 0), dtype=np.float32)

    def set_state(self, state: State) -> Self:
        """Check that this is the encoder that `get_state` described; if nobody answers, when somebody does."""
        try:
            self.encode([PROBE])
        except EncoderError as error:
            warnings.warn(f"{error}; it is compared with the encoder of the model later", RuntimeWarning, stacklevel=2)
            self._stored = state
            return self
        return super().set_state(state)

    def _encode(self, texts: list[str]) -> Float32:
        base, _, model = self.address.partition("#")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key := os.environ.get(KEY):
            headers["Authorization"] = f"Bearer {key}"
        body = json.dumps({"model": model, "input": texts, "encoding_format": "float"}).encode()
        request = Request(f"{base.rstrip('/')}/embeddings", body, headers)  # noqa: S310 - http or https
        try:
            with urlopen(request, timeout=_SECONDS) as response:  # noqa: S310
                rows = json.load(response)["data"]
            vectors = [row["embedding"] for row in sorted(rows, key=lambda row: int(row["index"]))]
            return check_vectors(vectors, len(texts), self.spec)
        except HTTPError as error:
            detail = error.read(300).decode(errors="replace").strip()
            raise EncoderError(f"{self.spec!r} answered HTTP {error.code}: {detail}") from error
        except (OSError, HTTPException) as error:
            raise EncoderError(f"{self.spec!r} cannot be reached: {error}") from error
        except (ValueError, KeyError, TypeError, DataError) as error:
            raise EncoderError(f"{self.spec!r} did not answer with one embedding per text: {error!r}") from error
