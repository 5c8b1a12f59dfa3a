"""Text encoders: the text of a query as a vector, so that callers need not bring vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from copy import copy
from typing import Any

from kinrank.errors import EncoderError, ParameterError
from kinrank.kin.encoders._pretrained import CustomEncoder, Encodes
from kinrank.kin.encoders.base import Encoder
from kinrank.registry import Registry

__all__ = ["ENCODERS", "Encoder", "EncoderSpec", "check_encoders", "make_encoder"]

EncoderSpec = str | Encoder | Encodes | Callable[[list[str]], Any]

ENCODERS = Registry(
    "encoder",
    {
        "ngrams": "kinrank.kin.encoders.ngrams:NgramEncoder",
        "model2vec": "kinrank.kin.encoders._pretrained:Model2VecEncoder",
        "sentence-transformers": "kinrank.kin.encoders._pretrained:SentenceTransformersEncoder",
        "fastembed": "kinrank.kin.encoders._pretrained:FastEmbedEncoder",
        "openai": "kinrank.kin.encoders._address:AddressEncoder",
        "custom": "kinrank.kin.encoders._pretrained:CustomEncoder",
    },
)


ALLOWED = "KINRANK_ENCODERS"
"""Environment variable with the encoders that any model may name, separated by commas."""


def check_encoders(settings: object, allowed: Collection[str] = ()) -> None:
    """Raise `EncoderError` if stored settings name an encoder of a library, or an address, that nobody has allowed.

    A library may run code of the model that it is asked for, and an address gets the texts of queries, so the name must
    not come from a folder alone.

    Parameters
    ----------
    settings
        Settings as a model folder stores them.
    allowed
        Encoders that are allowed besides those in the environment variable ``KINRANK_ENCODERS``.
    """
    trusted = {*allowed, *map(str.strip, os.environ.get(ALLOWED, "").split(","))}
    for name in _named_encoders(settings):
        if name not in trusted and make_encoder(name).needs_consent:
            raise EncoderError(
                f"the model names the encoder {name!r}, which may run code that comes with it, or gets the texts of "
                f"queries. If you trust it, pass allow_encoders=[{name!r}], or set {ALLOWED}={name}"
            )


def _named_encoders(settings: object) -> Iterator[str]:
    if isinstance(settings, dict):
        if isinstance(settings.get("encoder"), str):
            yield settings["encoder"]
        settings = list(settings.values())
    if isinstance(settings, list):
        for each in settings:
            yield from _named_encoders(each)


def make_encoder(encoder: EncoderSpec) -> Encoder:
    """Return the encoder that a setting names.

    Parameters
    ----------
    encoder
        ``"ngrams"``, with settings in parentheses if the defaults do not serve; ``"model2vec:NAME"``,
        ``"sentence-transformers:NAME"`` or ``"fastembed:NAME"``; an address that speaks the embeddings format of
        OpenAI, ``"openai:http://localhost:11434/v1#MODEL"``; an object with ``encode(list of str)``; a function
        from a list of texts to vectors; or an `Encoder`.

    Examples
    --------
    >>> make_encoder("ngrams(n_components=64)")
    NgramEncoder(n_components=64)
    >>> make_encoder("model2vec:minishlab/potion-base-8M").spec
    'model2vec:minishlab/potion-base-8M'
    """
    if isinstance(encoder, Encoder):
        return encoder if encoder.is_fitted else copy(encoder)
    if not isinstance(encoder, str):
        if not callable(encoder) and not isinstance(encoder, Encodes):
            raise ParameterError(
                f"encoder must be a name, an object with encode(texts), or a function, got {encoder!r}"
            )
        return CustomEncoder(encoder)
    library, colon, model = encoder.partition(":")
    if colon and "(" not in library:
        named: Encoder = ENCODERS[library](model)
        return named
    made: Encoder = ENCODERS.make(encoder)
    return made
