"""Encoders that come trained: any object with ``encode``, a function, or a model by name from a known library."""

from __future__ import annotations

import importlib.metadata
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any, Protocol, Self, runtime_checkable

from kinrank.arrays import Float32, State
from kinrank.errors import EncoderError
from kinrank.kin.encoders.base import Encoder, check_vectors
from kinrank.registry import import_extra


@runtime_checkable
class Encodes(Protocol):
    """An object of sentence-transformers, model2vec or anything like them."""

    def encode(self, texts: list[str]) -> Any:
        """Return one vector per text."""


class CustomEncoder(Encoder):
    """An object with ``encode(list of str)``, or a function, given in Python.

    Parameters
    ----------
    model
        The object or function. None for a model folder that was loaded without it: everything works with query
        vectors, and encoding raises `EncoderError`.
    """

    def __init__(self, model: Encodes | Callable[[list[str]], Any] | None = None) -> None:
        self.model = model

    @property
    def spec(self) -> str:
        """The name under which a model folder records that the encoder was given in Python."""
        return "custom"

    @property
    def version(self) -> str:
        """The class of the object."""
        return "" if self.model is None else f"{type(self.model).__module__}.{type(self.model).__qualname__}"

    def encode(self, texts: Sequence[str]) -> Float32:
        """Return one vector per text."""
        if self.model is None:
            raise EncoderError(
                "the model was trained with an encoder given in Python: load it with kinrank.load(path, encoder=...)"
            )
        encode = self.model.encode if isinstance(self.model, Encodes) else self.model
        return check_vectors(encode(list(texts)), len(texts), self.spec)

    def set_state(self, state: State) -> Self:
        """Check that this is the encoder of the model, if it is there."""
        return self if self.model is None else super().set_state(state)


class LibraryEncoder(Encoder):
    """A pretrained model of a library, loaded by name on first use.

    Parameters
    ----------
    model
        Name or folder of the model, as the library takes it.
    """

    library: str
    """Name of the package, and of kinrank's extra for it."""

    def __init__(self, model: str) -> None:
        self.model = model

    @property
    def spec(self) -> str:
        """The text from which `make_encoder` makes this encoder again."""
        return f"{self.library}:{self.model}"

    @property
    def version(self) -> str:
        """The version of the library."""
        return importlib.metadata.version(self.library)

    @property
    def needs_consent(self) -> bool:
        """A library may run code of the model that it is asked for."""
        return True

    @abstractmethod
    def load(self) -> Any:
        """Return the model, ready to encode."""

    def _encode(self, model: Any, texts: list[str]) -> Any:
        return model.encode(texts)

    def encode(self, texts: Sequence[str]) -> Float32:
        """Return one vector per text."""
        try:
            model = _load_once(type(self), self.model)
        except (OSError, ValueError, RuntimeError) as error:
            raise EncoderError(f"cannot load encoder {self.spec!r}: {error}") from error
        return check_vectors(self._encode(model, list(texts)), len(texts), self.spec)


@cache
def _load_once(encoder: type[LibraryEncoder], model: str) -> Any:
    """Load a model. Copies of a ranker, and rankers with the same encoder, share its weights."""
    return encoder(model).load()


class Model2VecEncoder(LibraryEncoder):
    """A static embedding model: ``model2vec:minishlab/potion-base-8M``."""

    library = "model2vec"

    def load(self) -> Any:
        """Return the model, ready to encode."""
        return import_extra("model2vec", "model2vec").StaticModel.from_pretrained(self.model)


class SentenceTransformersEncoder(LibraryEncoder):
    """A sentence-transformers model: ``sentence-transformers:all-MiniLM-L6-v2``, or the path of its folder."""

    library = "sentence-transformers"

    def load(self) -> Any:
        """Return the model, ready to encode."""
        return import_extra("sentence_transformers", "sentence-transformers").SentenceTransformer(
            self.model, device="cpu"
        )

    def _encode(self, model: Any, texts: list[str]) -> Any:
        return model.encode(texts, show_progress_bar=False)


class FastEmbedEncoder(LibraryEncoder):
    """A FastEmbed (ONNX) model: ``fastembed:BAAI/bge-small-en-v1.5``."""

    library = "fastembed"

    def load(self) -> Any:
        """Return the model, ready to encode."""
        return import_extra("fastembed", "fastembed").TextEmbedding(self.model)

    def _encode(self, model: Any, texts: list[str]) -> Any:
        vectors: Iterable[Any] = model.embed(texts)
        return list(vectors)
