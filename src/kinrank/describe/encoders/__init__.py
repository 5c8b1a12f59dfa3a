"""Text encoders: the text of a query as a vector, so that callers need not bring vectors."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, cast

from kinrank.describe.encoders.base import Encoder
from kinrank.describe.encoders.pretrained import CustomEncoder, Encodes
from kinrank.errors import ParameterError
from kinrank.registry import Registry

__all__ = ["ENCODERS", "Encoder", "EncoderSpec", "make_encoder"]

EncoderSpec = str | Encoder | Encodes | Callable[[list[str]], Any]

ENCODERS = Registry(
    "encoder",
    {
        "ngrams": "kinrank.describe.encoders.ngrams:NgramEncoder",
        "model2vec": "kinrank.describe.encoders.pretrained:Model2VecEncoder",
        "sentence-transformers": "kinrank.describe.encoders.pretrained:SentenceTransformersEncoder",
        "fastembed": "kinrank.describe.encoders.pretrained:FastEmbedEncoder",
        "custom": "kinrank.describe.encoders.pretrained:CustomEncoder",
    },
)


def make_encoder(encoder: EncoderSpec) -> Encoder:
    """Return the encoder that a setting names.

    Parameters
    ----------
    encoder
        ``"ngrams"``, with settings in parentheses if the defaults do not serve; ``"model2vec:NAME"``,
        ``"sentence-transformers:NAME"`` or ``"fastembed:NAME"``; an object with ``encode(list of str)``; a function
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
        return cast(Encoder, ENCODERS[library](model))
    return cast(Encoder, ENCODERS.make(encoder))
